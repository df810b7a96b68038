#include "data/dataset.h"

#include <algorithm>
#include <numeric>
#include <thread>

#include "made_split.h"
#include "prepare_support.h"
#include "support/seed.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

// The definition, place by place: which document each token belongs to decides everything.
Rows naive_sample(const std::vector<std::vector<std::int32_t>>& documents, std::uint64_t sample, std::int64_t length,
                  bool borders) {
  std::vector<std::int32_t> stream, document_of;
  for (std::size_t d = 0; d < documents.size(); ++d) {
    stream.insert(stream.end(), documents[d].begin(), documents[d].end());
    stream.push_back(kEnd);
    document_of.resize(stream.size(), static_cast<std::int32_t>(d));
  }
  const std::size_t size = stream.size();
  const auto id_at = [&](std::size_t i) { return i < size ? stream[i] : kEnd; };
  const auto document_at = [&](std::size_t i) { return i < size ? document_of[i] : std::int32_t{-1}; };
  Rows rows(length);
  const std::size_t begin = sample * static_cast<std::size_t>(length);
  for (std::size_t t = 0; t < static_cast<std::size_t>(length); ++t) {
    const std::size_t here = begin + t;
    rows.ids[t] = id_at(here);
    const bool same_document = document_at(here) == document_at(here + 1);
    rows.labels[t] = here + 1 < size && (!borders || same_document) ? id_at(here + 1) : -1;
    std::size_t start = 0;
    while (borders && document_at(begin + start) != document_at(here)) ++start;
    rows.starts[t] = static_cast<std::int32_t>(start);
    rows.positions[t] = static_cast<std::int32_t>(t - start);
  }
  return rows;
}

TEST(Dataset, RowsEqualTheDefinitionOnRandomDocuments) {
  const unsigned seed = trireme::testing::test_seed();
  SCOPED_TRACE("TRIREME_TEST_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 24; ++round) {
    const TempFolder folder;
    const std::int64_t length = 1 + static_cast<std::int64_t>(random() % 12);
    const std::int64_t vocabulary = round % 2 == 0 ? 300 : 100'000;
    std::vector<std::vector<std::int32_t>> documents(1 + random() % 20);
    for (auto& document : documents) {  // empty, shorter and longer than a sample; the mark's id also inside
      document.resize(random() % 3 == 0 ? 0 : random() % (3 * static_cast<std::uint64_t>(length)));
      for (std::int32_t& id : document)
        id = static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(vocabulary));
    }
    documents.front().resize(static_cast<std::size_t>(length) + 1, 3);
    write_split(folder.path(), documents, vocabulary, 3 + random() % 30);
    for (const bool borders : {false, true}) {
      const Dataset dataset(folder.path(), "train", {length, borders});
      ASSERT_EQ(dataset.num_samples(), (dataset.num_tokens() - 1 + static_cast<std::uint64_t>(length) - 1) /
                                           static_cast<std::uint64_t>(length));
      for (std::uint64_t sample = 0; sample < dataset.num_samples(); ++sample) {
        Rows rows(length);
        dataset.read(sample, rows.rows());
        const Rows expected = naive_sample(documents, sample, length, borders);
        ASSERT_EQ(rows.ids, expected.ids) << "T " << length << " sample " << sample;
        ASSERT_EQ(rows.labels, expected.labels) << "T " << length << " sample " << sample << " borders " << borders;
        ASSERT_EQ(rows.positions, expected.positions) << "T " << length << " sample " << sample;
        ASSERT_EQ(rows.starts, expected.starts) << "T " << length << " sample " << sample;
      }
    }
  }
}

// Without borders each token but the first is a label once: what an evaluation adds up is the whole split.
TEST(Dataset, EveryTokenButTheFirstIsALabelOnce) {
  for (const int size : {2, 5, 6, 7, 11, 13}) {
    const TempFolder folder;
    std::vector<std::int32_t> document(static_cast<std::size_t>(size) - 1);
    std::iota(document.begin(), document.end(), 20);
    write_split(folder.path(), {document}, 300, 4);
    for (const int length : {1, 2, 5}) {
      if (length > size) continue;
      const Dataset dataset(folder.path(), "train", {length, false});
      std::vector<std::int32_t> labels;
      for (std::uint64_t sample = 0; sample < dataset.num_samples(); ++sample) {
        Rows rows(length);
        dataset.read(sample, rows.rows());
        std::copy_if(rows.labels.begin(), rows.labels.end(), std::back_inserter(labels),
                     [](int id) { return id >= 0; });
      }
      EXPECT_EQ(labels, dataset.tokens(1, dataset.num_tokens())) << size << " tokens, T " << length;
    }
  }
}

class BrokenFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    std::vector<std::vector<std::int32_t>> documents(8, std::vector<std::int32_t>(9, 5));
    for (std::size_t i = 0; i < documents.size(); ++i) documents[i][0] = static_cast<std::int32_t>(20 + i);
    write_split(folder_.path(), documents, 300, 40);
  }
  Error error_of_reading(bool borders = false) const {
    return error_of([&] {
      const Dataset dataset(folder_.path(), "train", {4, borders});
      Rows rows(4);
      for (std::uint64_t sample = 0; sample < dataset.num_samples(); ++sample) dataset.read(sample, rows.rows());
    });
  }
  void damage(const std::string& name, const std::function<void(std::string&)>& change) const {
    std::string bytes = read_file(folder_ / name);
    change(bytes);
    write(folder_ / name, bytes);
  }
  TempFolder folder_;
};

TEST_F(BrokenFolder, ADamagedShardIsNamed) {
  damage("train-00001.tokens", [](std::string& bytes) { bytes[10] ^= 1; });
  const Error error = error_of_reading();
  EXPECT_EQ(error.code(), 4030);
  EXPECT_NE(error.place().find("train-00001.tokens"), std::string::npos) << error.what();
}

TEST_F(BrokenFolder, ADamagedShardIsFoundAtEveryTouch) {
  damage("train-00000.tokens", [](std::string& bytes) { bytes[0] ^= 1; });
  const Dataset dataset(folder_.path(), "train", {4, false});
  Rows rows(4);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(error_code([&] { dataset.read(0, rows.rows()); }), 4030);
  EXPECT_EQ(error_code([&] { dataset.read(dataset.num_samples() - 1, rows.rows()); }), 0) << "the other one is whole";
}

TEST_F(BrokenFolder, ACutShardIsNamed) {
  damage("train-00000.tokens", [](std::string& bytes) { bytes.pop_back(); });
  EXPECT_EQ(error_of_reading().code(), 4030);
}

TEST_F(BrokenFolder, AMissingShardIsNamed) {
  fs::remove(folder_ / "train-00001.tokens");
  const Error error = error_of_reading();
  EXPECT_EQ(error.code(), 4030);
  EXPECT_NE(error.place().find("train-00001.tokens"), std::string::npos) << error.what();
}

TEST_F(BrokenFolder, SwappedShardsAreFound) {
  fs::rename(folder_ / "train-00000.tokens", folder_ / "x");
  fs::rename(folder_ / "train-00001.tokens", folder_ / "train-00000.tokens");
  fs::rename(folder_ / "x", folder_ / "train-00001.tokens");
  EXPECT_EQ(error_of_reading().code(), 4030);
}

TEST_F(BrokenFolder, DamagedDocumentEndsAreFoundWhereTheyAreUsed) {
  damage("train.documents", [](std::string& bytes) { bytes[8] ^= 1; });
  EXPECT_EQ(error_of_reading(true).code(), 4030);
}

TEST_F(BrokenFolder, AFolderWithoutManifestHoldsNoData) {
  fs::remove(folder_ / "manifest.json");
  EXPECT_EQ(error_of_reading().code(), 4031);
}

// A shard whose digest is right and whose ids are not must not reach the embedding.
TEST(Dataset, IdsBeyondTheVocabularyAreRefused) {
  const TempFolder folder;
  write_split(folder.path(), {{1, 2, 3}, {4, 299, 5}}, 299, 100);
  Rows rows(2);
  const Dataset dataset(folder.path(), "train", {2, false});
  const Error error = error_of([&] { dataset.read(0, rows.rows()); });
  EXPECT_EQ(error.code(), 4030);
  EXPECT_NE(error.message().find("299"), std::string::npos) << error.what();
}

TEST(Dataset, ASplitShorterThanASampleIsRefusedWithTheCounts) {
  const TempFolder folder;
  write_split(folder.path(), {{1, 2, 3}, {4, 5}}, 300, 100);
  EXPECT_EQ(error_code([&] { Dataset(folder.path(), "train", {7, false}); }), 0);
  const Error error = error_of([&] { Dataset(folder.path(), "train", {8, false}); });
  EXPECT_EQ(error.code(), 4022);
  EXPECT_NE(error.message().find('8'), std::string::npos);
  EXPECT_NE(error.message().find("7 tokens"), std::string::npos) << error.what();
  EXPECT_EQ(error_code([&] { Dataset(folder.path(), "train", {0, false}); }), 4022);
  EXPECT_EQ(error_code([&] { Dataset(folder.path(), "heldout", {1, false}); }), 4023);
  EXPECT_EQ(error_code([&] { Dataset(folder.path(), "../train", {1, false}); }), 4025);
}

TEST(Dataset, ManyThreadsMayTouchAShardFirst) {
  const TempFolder folder;
  std::vector<std::vector<std::int32_t>> documents(50, std::vector<std::int32_t>(100, 5));
  write_split(folder.path(), documents, 300, 700);
  const Dataset dataset(folder.path(), "train", {16, true});
  std::vector<std::thread> threads;
  std::vector<std::vector<std::int32_t>> sums(4, std::vector<std::int32_t>(1));
  for (std::size_t i = 0; i < sums.size(); ++i) {
    threads.emplace_back([&, i] {
      Rows rows(16);
      for (std::uint64_t sample = 0; sample < dataset.num_samples(); ++sample) {
        dataset.read(sample, rows.rows());
        sums[i][0] = std::accumulate(rows.labels.begin(), rows.labels.end(), sums[i][0]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& sum : sums) EXPECT_EQ(sum, sums[0]);
}

TEST(SampleOrder, EachSampleComesOnceAnEpoch) {
  for (const std::uint64_t n : {1u, 2u, 3u, 7u, 64u, 100u, 1001u}) {
    for (const std::uint64_t seed : {0ull, 1ull, 42ull, ~0ull}) {
      const SampleOrder order{seed, n, true};
      std::vector<std::uint64_t> first;
      for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
        std::vector<std::uint64_t> seen;
        for (std::uint64_t i = 0; i < n; ++i) {
          ASSERT_EQ(order.epoch(epoch * n + i), epoch);
          seen.push_back(order.sample(epoch * n + i));
        }
        if (epoch == 0) first = seen;
        if (epoch == 1 && n >= 64) {
          EXPECT_NE(seen, first) << "epochs differ";
        }
        std::sort(seen.begin(), seen.end());
        for (std::uint64_t i = 0; i < n; ++i) ASSERT_EQ(seen[i], i) << n << " samples, seed " << seed;
      }
    }
  }
}

TEST(SampleOrder, WithoutShuffleItIsTheOrderOfTheFile) {
  const SampleOrder order{5, 10, false};
  for (std::uint64_t i = 0; i < 30; ++i) EXPECT_EQ(order.sample(i), i % 10);
}

}  // namespace
}  // namespace trireme::data
