#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"
#include "train/tiny_run.h"

namespace trireme::testing {
namespace {

void append(TinyResult& all, const TinyResult& part) {
  all.losses.insert(all.losses.end(), part.losses.begin(), part.losses.end());
  all.learning_rates.insert(all.learning_rates.end(), part.learning_rates.begin(), part.learning_rates.end());
  all.gradient_norms.insert(all.gradient_norms.end(), part.gradient_norms.begin(), part.gradient_norms.end());
  for (const auto& [step, ids] : part.samples) {
    EXPECT_FALSE(all.samples.contains(step)) << "step " << step << " ran twice";
    all.samples[step] = ids;
  }
  all.weights_digest = part.weights_digest;
  all.last_step = part.last_step;
  all.stopped = part.stopped;
}

void expect_equal(const TinyResult& resumed, const TinyResult& never_stopped) {
  EXPECT_EQ(resumed.losses, never_stopped.losses);
  EXPECT_EQ(resumed.learning_rates, never_stopped.learning_rates);
  EXPECT_EQ(resumed.gradient_norms, never_stopped.gradient_norms);
  EXPECT_EQ(resumed.samples, never_stopped.samples);
  EXPECT_EQ(resumed.weights_digest, never_stopped.weights_digest);
  EXPECT_EQ(resumed.last_step, never_stopped.last_step);
}

// Stops after each of `stops` in turn, then runs to the end; ranks_of(k) ranks in the k-th start.
TinyResult run_with_stops(TinyRun run, const std::vector<std::int64_t>& stops,
                          const std::function<int(std::size_t)>& ranks_of) {
  const TemporaryFolder folder;
  run.output_dir = folder.path() / "run";
  TinyResult all;
  for (std::size_t start = 0; start <= stops.size(); ++start) {
    run.ranks = ranks_of(start);
    const bool last = start == stops.size();
    run.stop_at = [&](int rank, std::int64_t step) { return !last && rank == run.ranks - 1 && step == stops[start]; };
    const TinyResult part = train_tiny(run);
    EXPECT_EQ(part.stopped, !last);
    append(all, part);
  }
  return all;
}

TinyResult run_whole(TinyRun run) {
  return run_with_stops(run, {}, [&](std::size_t) { return run.ranks; });
}

TEST(Resume, StoppedAtAnyStepAndResumedFiveTimesEqualsNeverStopped) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const TinyRun run{.ranks = 2, .micro_batches = 5};
  const TinyResult never_stopped = run_whole(run);
  for (int round = 0; round < 4; ++round) {
    std::vector<std::int64_t> steps(19);
    for (int i = 0; i < 19; ++i) steps[i] = i + 1;
    std::shuffle(steps.begin(), steps.end(), random);
    steps.resize(5);
    std::sort(steps.begin(), steps.end());
    expect_equal(run_with_stops(run, steps, [](std::size_t) { return 2; }), never_stopped);
  }
}

TEST(Resume, OnAnotherNumberOfRanksEqualsNeverStopped) {
  const TinyRun run{.ranks = 2, .micro_batches = 6};
  const int ranks[] = {2, 4, 1, 3, 2, 6};
  expect_equal(run_with_stops(run, {2, 3, 9, 10, 17}, [&](std::size_t start) { return ranks[start]; }), run_whole(run));
}

TEST(Resume, Bf16AndReducingOnceAStepResumeBitEqualToo) {
  const TinyRun run{.ranks = 3, .micro_batches = 4, .steps = 8, .reduce_each_micro_batch = false, .bf16 = true};
  expect_equal(run_with_stops(run, {1, 5}, [](std::size_t) { return 3; }), run_whole(run));
}

TEST(Resume, GoesOnAlongEveryLaw) {
  for (const char* law : {"warmup", "warmup_decay", "warmup_cosine", "one_cycle", "lr_range_test"}) {
    SCOPED_TRACE(law);
    TinyRun run{.ranks = 2, .micro_batches = 4, .steps = 9};
    run.overrides = {std::string("training.lr_scheduler=") + law, "training.cycle_min_learning_rate=1e-4",
                     "training.cycle_first_step_size=3", "training.range_test_step_size=3"};
    const TinyResult whole = run_whole(run);
    expect_equal(run_with_stops(run, {2, 6}, [](std::size_t) { return 2; }), whole);
    EXPECT_NE(whole.learning_rates[2], whole.learning_rates[3]);
  }
}

TEST(Resume, PaddedSamplesResumeBitEqualOnAnotherNumberOfRanks) {
  TinyRun run{.ranks = 2, .micro_batches = 6, .data = short_documents().folder};
  run.overrides = {"data.packing=padded", "data.num_workers=0"};
  const int ranks[] = {2, 4, 1, 3};
  expect_equal(run_with_stops(run, {2, 9, 10}, [&](std::size_t start) { return ranks[start]; }), run_whole(run));
}

// The exactly-once ledger: all epochs' samples add up, whatever is a sample and however often the run was resumed.
void expect_each_sample_once_an_epoch(TinyRun run, const std::vector<std::string>& overrides, std::uint64_t n) {
  run.steps = 0;
  run.overrides = overrides;
  run.overrides.emplace_back("training.num_epochs=2");
  const TinyResult all =
      run_with_stops(run, {1, 3, 4}, [](std::size_t start) { return static_cast<int>(start % 4) + 1; });
  std::map<std::uint64_t, int> seen;
  std::uint64_t taken = 0;
  for (const auto& [step, ids] : all.samples) {
    for (const std::uint64_t id : ids) ++seen[id];
    taken += ids.size();
  }
  const auto batch = static_cast<std::uint64_t>(run.micro_batches) * run.micro_batch_size;
  EXPECT_EQ(taken, 2 * n / batch * batch);
  EXPECT_EQ(seen.size(), n);
  for (const auto& [id, times] : seen) EXPECT_TRUE(times == 2 || (times == 1 && taken < 2 * n)) << "sample " << id;
}

TEST(Resume, EveryPaddedSampleIsSeenOncePerEpochAcrossResumes) {
  const TinyRun run{.micro_batches = 5, .data = short_documents().folder};
  expect_each_sample_once_an_epoch(run, {"data.packing=padded"}, 50);
  expect_each_sample_once_an_epoch(run, {"data.packing=padded", "data.split=train[10%:-3%]"}, 43);
  expect_each_sample_once_an_epoch(run, {"data.packing=padded", "data.max_samples=33", "data.num_workers=3"}, 33);
}

TEST(Resume, OtherSamplesThanTheCheckpointsAreRefused) {
  const TemporaryFolder folder;
  TinyRun run{.steps = 2, .output_dir = folder.path() / "run", .data = short_documents().folder};
  run.overrides = {"data.packing=padded", "data.split=train[:40]"};
  train_tiny(run);
  run.steps = 4;
  for (const std::vector<std::string>& others : {
           std::vector<std::string>{"data.packing=padded", "data.split=train[:41]"},
           {"data.packing=padded", "data.split=train[:40]", "data.max_samples=39"},
           {"data.packing=padded", "data.split=train[:40]", "data.add_eos_token=false"},
           {"data.packing=packed", "data.split=train[:40]"},
       }) {
    run.overrides = others;
    expect_error(4040, [&] { train_tiny(run); });
  }
}

TEST(Resume, EverySampleIsSeenOncePerEpochAcrossResumes) {
  TinyRun run{.micro_batches = 4, .micro_batch_size = 8, .steps = 0};
  run.overrides = {"training.num_epochs=2"};
  const TinyResult all =
      run_with_stops(run, {3, 11, 12, 13, 20}, [](std::size_t start) { return static_cast<int>(start % 4) + 1; });
  std::map<std::uint64_t, int> seen;
  std::uint64_t taken = 0;
  for (const auto& [step, ids] : all.samples) {
    for (const std::uint64_t id : ids) ++seen[id];
    taken += ids.size();
  }
  const data::Dataset dataset(tiny_data(), "train", {16, false});
  const std::uint64_t n = dataset.num_samples();
  EXPECT_EQ(taken, 2 * n / 32 * 32);
  EXPECT_EQ(seen.size(), n);
  for (const auto& [id, times] : seen) EXPECT_TRUE(times == 2 || (times == 1 && taken < 2 * n)) << "sample " << id;
}

TEST(Resume, MustWithoutACheckpointAndBrokenOnesAreRefused) {
  const TemporaryFolder folder;
  TinyRun run{.steps = 4, .output_dir = folder.path() / "run"};
  run.overrides = {"checkpoint.resume=must"};
  try {
    train_tiny(run);
    FAIL() << "started without a checkpoint";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), 5051);
  }
  run.overrides = {};
  train_tiny(run);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(run.output_dir / "checkpoints")) {
    if (entry.path().extension() != ".safetensors") continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('\x7f');
  }
  try {
    train_tiny(run);
    FAIL() << "started from zero over a damaged checkpoint";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), 5050);
    EXPECT_EQ(error.exit_code(), 5);
  }
  run.overrides = {"checkpoint.resume=never"};
  EXPECT_EQ(train_tiny(run).losses.size(), 4u);
}

TEST(Resume, WalksBackToTheNewestValidCheckpoint) {
  const TemporaryFolder folder;
  TinyRun run{.ranks = 2, .steps = 9, .output_dir = folder.path() / "run"};
  run.overrides = {"checkpoint.save_interval=3"};
  const TinyResult whole = train_tiny(run);
  for (const auto& entry : std::filesystem::directory_iterator(run.output_dir / "checkpoints/step-00000009")) {
    if (entry.path().extension() == ".safetensors") std::filesystem::resize_file(entry.path(), 1000);
  }
  const TinyResult again = train_tiny(run);
  EXPECT_EQ(again.losses, std::vector<double>(whole.losses.begin() + 6, whole.losses.end()));
  EXPECT_EQ(again.weights_digest, whole.weights_digest);
}

TEST(Resume, KeepsOneCurveInTheMetrics) {
  const TemporaryFolder folder;
  TinyRun run{.ranks = 2, .steps = 9, .output_dir = folder.path() / "run"};
  run.overrides = {"checkpoint.save_interval=4"};
  run.stop_at = [](int, std::int64_t step) { return step == 6; };
  EXPECT_TRUE(train_tiny(run).stopped);
  std::filesystem::remove_all(run.output_dir / "checkpoints/step-00000006");  // steps 5 and 6 will be done again
  run.stop_at = {};
  train_tiny(run);
  std::ifstream file(run.output_dir / "metrics.jsonl");
  std::vector<std::int64_t> steps;
  for (std::string line; std::getline(file, line);) {
    const auto record = nlohmann::json::parse(line);
    if (!record.contains("event")) steps.push_back(record["step"]);
  }
  EXPECT_EQ(steps, (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

}  // namespace
}  // namespace trireme::testing
