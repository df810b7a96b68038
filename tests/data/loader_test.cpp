#include "data/loader.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/failpoint.h"
#include "prepare_support.h"

namespace trireme::data {
namespace {

constexpr std::int64_t kSequence = 8;

class LoaderTest : public ::testing::TestWithParam<Packing> {
 protected:
  void SetUp() override {
    std::mt19937_64 random(3);
    std::string lines;
    for (int i = 0; i < 30; ++i) lines += json_line(random_text(random, 20));
    write(folder_ / "in/a.jsonl", lines);
    PrepareOptions options;
    options.inputs = {folder_ / "in"};
    options.output = folder_ / "out";
    prepare(options);
    dataset_ = std::make_unique<Dataset>(folder_ / "out", "train", DatasetOptions{kSequence, true, GetParam()});
    order_ = {.seed = 11, .num_samples = dataset_->num_samples(), .shuffle = true};
  }
  void TearDown() override { set_failpoints(""); }

  static LoaderOptions options(int micro_batches, int ranks, int rank, int workers = 1, std::int64_t batch = 2) {
    return {batch, {micro_batches, ranks}, rank, workers, 2};
  }

  // The rows of one sample, as the dataset gives them: ids, labels, positions, starts.
  std::vector<std::int32_t> rows_of(std::uint64_t sample) const {
    std::vector<std::int32_t> rows(4 * kSequence);
    std::int32_t* at = rows.data();
    dataset_->read(sample, {at, at + kSequence, at + 2 * kSequence, at + 3 * kSequence});
    return rows;
  }
  static std::vector<std::int32_t> rows_of(const Batch& batch, std::int64_t b) {
    std::vector<std::int32_t> rows;
    for (const std::int32_t* field : {batch.ids, batch.labels, batch.positions, batch.starts}) {
      rows.insert(rows.end(), field + b * kSequence, field + (b + 1) * kSequence);
    }
    return rows;
  }

  // One step over all ranks, checked place by place; the samples by position.
  std::map<std::uint64_t, std::uint64_t> step_of_all(std::vector<std::unique_ptr<Loader>>& loaders, int micro_batches) {
    std::map<std::uint64_t, std::uint64_t> samples;
    const int ranks = static_cast<int>(loaders.size());
    for (int rank = 0; rank < ranks; ++rank) {
      const StepBatches step = loaders[static_cast<std::size_t>(rank)]->next();
      const MicroBatchSplit split{micro_batches, ranks};
      EXPECT_EQ(step.rounds.size(), static_cast<std::size_t>(split.rounds()));
      std::int64_t valid = 0;
      for (int round = 0; round < split.rounds(); ++round) {
        const Batch& batch = step.rounds[static_cast<std::size_t>(round)];
        const int micro_batch = split.micro_batch(round, rank);
        EXPECT_EQ(batch.shape.sequence, kSequence);
        EXPECT_EQ(batch.shape.batch, micro_batch < 0 ? 0 : 2) << "rank " << rank << " round " << round;
        const auto& ids = step.samples[static_cast<std::size_t>(round)];
        EXPECT_EQ(ids.size(), static_cast<std::size_t>(batch.shape.batch));
        for (std::int64_t b = 0; b < batch.shape.batch; ++b) {
          const std::uint64_t sample = ids[static_cast<std::size_t>(b)];
          const auto position = step.first_position + static_cast<std::uint64_t>(2 * micro_batch + b);
          EXPECT_TRUE(samples.emplace(position, sample).second) << "position " << position << " twice";
          EXPECT_EQ(sample, order_.sample(position));
          EXPECT_EQ(rows_of(batch, b), rows_of(sample));
          valid += std::count_if(batch.labels + b * kSequence, batch.labels + (b + 1) * kSequence,
                                 [](std::int32_t label) { return label >= 0; });
        }
      }
      EXPECT_EQ(step.valid_labels, valid);
    }
    return samples;
  }

  TempFolder folder_;
  std::unique_ptr<Dataset> dataset_;
  SampleOrder order_;
};

// At any number of ranks and workers the ranks' samples are the step's, each once, in the order's places; the slots
// that a ragged last round leaves are absent.
TEST_P(LoaderTest, RanksPartitionEveryStep) {
  for (const int micro_batches : {1, 4, 5}) {
    for (int ranks = 1; ranks <= micro_batches; ++ranks) {
      for (const int workers : {0, 1, 3}) {
        std::vector<std::unique_ptr<Loader>> loaders;
        for (int rank = 0; rank < ranks; ++rank) {
          loaders.push_back(std::make_unique<Loader>(*dataset_, order_, options(micro_batches, ranks, rank, workers)));
        }
        for (int step = 0; step < 4; ++step) {
          const auto samples = step_of_all(loaders, micro_batches);
          const auto size = 2 * static_cast<std::uint64_t>(micro_batches);
          ASSERT_EQ(samples.size(), size);
          EXPECT_EQ(samples.begin()->first, static_cast<std::uint64_t>(step) * size);
          EXPECT_EQ(samples.rbegin()->first, static_cast<std::uint64_t>(step + 1) * size - 1);
        }
      }
    }
  }
}

// Steps do not stop at the end of an epoch, and each epoch has each sample once.
TEST_P(LoaderTest, EachSampleComesOnceAnEpochAcrossSteps) {
  Loader loader(*dataset_, order_, options(3, 1, 0, 2));
  std::vector<std::uint64_t> samples;
  while (samples.size() < 3 * order_.num_samples) {
    for (const auto& round : loader.next().samples) samples.insert(samples.end(), round.begin(), round.end());
  }
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    const auto begin = samples.begin() + static_cast<std::ptrdiff_t>(epoch * order_.num_samples);
    EXPECT_EQ(std::set<std::uint64_t>(begin, begin + static_cast<std::ptrdiff_t>(order_.num_samples)).size(),
              order_.num_samples);
  }
}

// Stopped after any step and started again, on another number of ranks: the samples of a run that never stopped.
TEST_P(LoaderTest, ContinuesFromAnyStepOnAnyNumberOfRanks) {
  constexpr int kMicroBatches = 4, kSteps = 10;
  std::map<std::uint64_t, std::uint64_t> expected;
  {
    std::vector<std::unique_ptr<Loader>> loaders;
    loaders.push_back(std::make_unique<Loader>(*dataset_, order_, options(kMicroBatches, 1, 0)));
    for (int step = 0; step < kSteps; ++step) expected.merge(step_of_all(loaders, kMicroBatches));
  }
  for (int stop = 0; stop < kSteps; ++stop) {
    std::map<std::uint64_t, std::uint64_t> seen;
    for (const bool restarted : {false, true}) {
      const int ranks = restarted ? 3 : 2;
      std::vector<std::unique_ptr<Loader>> loaders;
      for (int rank = 0; rank < ranks; ++rank) {
        loaders.push_back(std::make_unique<Loader>(*dataset_, order_, options(kMicroBatches, ranks, rank, 2)));
        if (restarted) loaders.back()->seek(static_cast<std::uint64_t>(stop) * 2 * kMicroBatches);
      }
      for (int step = restarted ? stop : 0; step < (restarted ? kSteps : stop); ++step) {
        seen.merge(step_of_all(loaders, kMicroBatches));
      }
    }
    EXPECT_EQ(seen, expected) << "stopped after step " << stop;
  }
}

TEST_P(LoaderTest, SeekDropsWhatWasMadeAhead) {
  Loader loader(*dataset_, order_, options(2, 1, 0, 3));
  for (const std::uint64_t position : {0u, 4u, 40u, 8u, 8u, 0u}) {
    loader.seek(position);
    for (std::uint64_t step = 0; step < 3; ++step) EXPECT_EQ(loader.next().first_position, position + 4 * step);
  }
}

TEST_P(LoaderTest, AnErrorOfAWorkerIsThrownAtItsStepAndStays) {
  set_failpoints("data.loader=throw@rank1@3");
  Loader other(*dataset_, order_, options(2, 2, 0));
  Loader loader(*dataset_, order_, options(2, 2, 1));
  for (int step = 0; step < 5; ++step) other.next();
  EXPECT_EQ(loader.next().first_position, 0u);
  EXPECT_EQ(loader.next().first_position, 4u);
  EXPECT_EQ(error_code([&] { loader.next(); }), 3091);
  EXPECT_EQ(error_code([&] { loader.next(); }), 3091);
  loader.seek(8);
  EXPECT_EQ(loader.next().first_position, 8u) << "the failpoint fires once";
}

TEST_P(LoaderTest, ADamagedShardIsAnErrorOfNext) {
  std::string bytes = read_file(folder_ / "out/train-00000.tokens");
  bytes[5] = static_cast<char>(bytes[5] ^ 1);
  write(folder_ / "out/train-00000.tokens", bytes);
  const Dataset damaged(folder_ / "out", "train", {kSequence, false, GetParam()});
  Loader loader(damaged, order_, options(2, 1, 0, 3));
  EXPECT_EQ(error_code([&] { loader.next(); }), 4030);
}

// Wherever its threads are: before the first step, waiting for room, or in the middle of a step.
TEST_P(LoaderTest, CanBeDestroyedAtAnyTime) {
  for (int i = 0; i < 200; ++i) {
    Loader loader(*dataset_, order_, options(2, 1, 0, 1 + i % 4));
    for (int step = 0; step < i % 3; ++step) loader.next();
    if (i % 5 == 0) loader.seek(8);
  }
  set_failpoints("data.loader=sleep(30)@1;data.loader=sleep(30)@2");
  Loader loader(*dataset_, order_, options(2, 1, 0, 2));
}

TEST_P(LoaderTest, TellsHowLongItWaited) {
  set_failpoints("data.loader=sleep(60)@1");
  Loader loader(*dataset_, order_, options(2, 1, 0));
  loader.next();
  EXPECT_GE(loader.last_wait_seconds(), 0.03);
}

// A step's memory is the caller's as long as it holds it, also after the loader is gone; given back, it is used again.
TEST_P(LoaderTest, MemoryIsTheCallersAndIsReused) {
  StepBatches kept;
  std::vector<std::int32_t> first;
  std::set<const void*> blocks;
  {
    Loader loader(*dataset_, order_, options(2, 1, 0, 2));
    kept = loader.next();
    first = rows_of(kept.rounds[0], 0);
    for (int step = 0; step < 100; ++step) {
      const StepBatches batches = loader.next();
      blocks.insert(batches.memory.get());
      EXPECT_NE(batches.memory.get(), kept.memory.get());
    }
  }
  EXPECT_EQ(rows_of(kept.rounds[0], 0), first);
  EXPECT_LE(blocks.size(), 12u);
}

// With no workers a step is made when it is asked for, on the thread that asks.
TEST_P(LoaderTest, WithoutWorkersTheCallerMakesTheStep) {
  set_failpoints("data.loader=sleep(30)@2;data.loader=throw@3");
  Loader loader(*dataset_, order_, options(2, 1, 0, 0));
  EXPECT_EQ(loader.next().first_position, 0u);
  EXPECT_EQ(loader.next().first_position, 4u);
  EXPECT_GE(loader.last_wait_seconds(), 0.02);
  EXPECT_EQ(error_code([&] { loader.next(); }), 3091);
  EXPECT_EQ(loader.next().first_position, 8u) << "nothing is passed over";
  loader.seek(40);
  EXPECT_EQ(loader.next().first_position, 40u);
}

INSTANTIATE_TEST_SUITE_P(Packings, LoaderTest, ::testing::Values(Packing::packed, Packing::padded),
                         [](const auto& info) { return info.param == Packing::padded ? "Padded" : "Packed"; });

}  // namespace
}  // namespace trireme::data
