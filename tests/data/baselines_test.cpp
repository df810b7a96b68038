#include <cmath>

#include "data/dataset.h"
#include "prepare_support.h"
#include "text_baselines/bigram.h"
#include "text_baselines/coding.h"
#include "text_baselines/gzip.h"
#include "text_baselines/run_record.h"

namespace trireme::baselines {
namespace {

// V = 4, seen: 0 1, 0 1, 0 2, 1 0. By hand:
//   labels 1 1 2 0: count 4, types 3; P(1) = (2 + 3/4) / 7, P(2) = P(0) = (1 + 3/4) / 7, P(3) = (0 + 3/4) / 7
//   after 0: count 3, types 2; after 1: count 1, types 1; after 2: nothing
TEST(Bigram, EqualsTheTableWorkedOutByHand) {
  Bigram bigram(4);
  for (const auto& [context, label] : {std::pair{0, 1}, {0, 1}, {0, 2}, {1, 0}}) bigram.count(context, label);
  EXPECT_DOUBLE_EQ(bigram.probability(1), 2.75 / 7);
  EXPECT_DOUBLE_EQ(bigram.probability(3), 0.75 / 7);
  EXPECT_DOUBLE_EQ(bigram.probability(0, 1), (2 + 2 * 2.75 / 7) / 5);
  EXPECT_DOUBLE_EQ(bigram.probability(0, 3), (0 + 2 * 0.75 / 7) / 5);
  EXPECT_DOUBLE_EQ(bigram.probability(1, 0), (1 + 1 * 1.75 / 7) / 2);
  EXPECT_DOUBLE_EQ(bigram.probability(2, 1), 2.75 / 7);
  EXPECT_DOUBLE_EQ(bigram.bits(2, 1), -std::log2(2.75 / 7));
}

TEST(Bigram, EveryContextIsADistribution) {
  std::mt19937_64 random(5);
  Bigram bigram(50);
  for (int i = 0; i < 300; ++i) bigram.count(static_cast<int>(random() % 40), static_cast<int>(random() % 45));
  for (int context = 0; context < 50; ++context) {
    double sum = 0;
    for (int label = 0; label < 50; ++label) sum += bigram.probability(context, label);
    EXPECT_NEAR(sum, 1, 1e-12) << context;
  }
}

TEST(Bigram, NothingSeenIsUniform) {
  EXPECT_DOUBLE_EQ(Bigram(8).bits(3, 5), 3);
}

// Prepared from these texts by bytes (256 ends a document), in samples of 3: the run took two of them.
TEST(BigramCoding, CountsTheLabelsOfThePositionsTakenAndCodesAllHeldOutOnes) {
  const data::TempFolder folder;
  data::write(folder / "in/a.txt", "abab");
  data::write(folder / "in/b.txt", "abcabd");
  data::PrepareOptions options;
  options.inputs = {folder / "in"};
  options.output = folder / "out";
  options.held_out = 1e-9;  // one of the two
  data::prepare(options);
  for (const bool borders : {false, true}) {
    const data::Dataset train(folder / "out", "train", {3, borders}), heldout(folder / "out", "heldout", {3, borders});
    const data::SampleOrder order{9, train.num_samples(), true};
    Bigram expected(257);
    const std::vector<std::int32_t> seen = train.tokens(0, train.num_tokens());
    for (const std::uint64_t position : {0u, 1u}) {
      const std::size_t begin = 3 * order.sample(position);
      for (std::size_t t = begin; t < begin + 3 && t + 1 < seen.size(); ++t) expected.count(seen[t], seen[t + 1]);
    }
    double bits = 0;
    const std::vector<std::int32_t> coded = heldout.tokens(0, heldout.num_tokens());
    for (std::size_t t = 0; t + 1 < coded.size(); ++t) bits += expected.bits(coded[t], coded[t + 1]);
    const Coded result = code_by_bigram(train, order, 2, heldout);
    EXPECT_EQ(result.tokens, coded.size() - 1);
    EXPECT_NEAR(result.bits, bits, 1e-9);
    EXPECT_LT(result.bits, 8 * static_cast<double>(coded.size())) << "better than nothing seen";
  }
}

TEST(Gzip, MeasuresWhatTheProgramWrites) {
  const auto size_of = [](const std::vector<std::string>& pieces) {
    return gzip_size([&](const auto& take) {
      for (const std::string& piece : pieces) take(piece);
    });
  };
  EXPECT_EQ(size_of({}), 20u);  // header and trailer of nothing
  EXPECT_EQ(size_of({"ab", "cab"}), size_of({"abcab"}));
  EXPECT_LT(size_of({std::string(100'000, 'x')}), 200u);
  std::mt19937_64 random(1);
  std::string noise(100'000, 0);
  for (char& byte : noise) byte = static_cast<char>(random());
  EXPECT_GT(size_of({noise}), 100'000u);
}

TEST(RunRecord, TakesTheLastWholeEvaluationAndTheLastCursor) {
  const data::TempFolder folder;
  const auto file = data::write(folder / "metrics.jsonl",
                                "{\"step\": 1, \"loss\": 5.5}\n"
                                "{\"event\": \"eval\", \"step\": 1, \"nats\": 9.0, \"tokens\": 3, \"bytes\": 2}\n"
                                "{\"event\": \"eval\", \"step\": 2, \"nats\": 8.5, \"tokens\": 3, \"bytes\": 2}\n"
                                "{\"event\": \"eval\", \"step\": 3, \"nats\": 1.0, \"tokens\": 1}\n"
                                "{\"event\": \"stop\", \"step\": 2}\n"
                                "{\"event\": \"done\", \"data_position\": 12, \"seed\": 7, \"sequence_length\": 64, "
                                "\"document_borders\": true}\n"
                                "[1, 2]\n"
                                "{\"event\": \"ev");
  const RunRecord record = read_run_record(file);
  ASSERT_TRUE(record.evaluation && record.consumed);
  EXPECT_EQ(record.evaluation->step, 2);
  EXPECT_EQ(record.evaluation->nats, 8.5);
  EXPECT_EQ(record.consumed->data_position, 12u);
  EXPECT_EQ(record.consumed->seed, 7u);
  EXPECT_TRUE(record.consumed->document_borders);
}

}  // namespace
}  // namespace trireme::baselines
