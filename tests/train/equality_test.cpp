// The proof of DESIGN section 5: the way of running changes nothing.
#include <gtest/gtest.h>

#include <cmath>

#include "support/temporary_folder.h"
#include "train/tiny_run.h"

namespace trireme::testing {
namespace {

// The same run on other numbers of ranks.
void expect_same_bits(TinyRun run, const TinyResult& serial, std::initializer_list<int> numbers_of_ranks) {
  for (const int ranks : numbers_of_ranks) {
    run.ranks = ranks;
    const TinyResult parallel = train_tiny(run);
    EXPECT_EQ(parallel.losses, serial.losses) << ranks << " ranks";
    EXPECT_EQ(parallel.gradient_norms, serial.gradient_norms) << ranks << " ranks";
    EXPECT_EQ(parallel.samples, serial.samples) << ranks << " ranks";
    EXPECT_EQ(parallel.weights_digest, serial.weights_digest) << ranks << " ranks";
    EXPECT_TRUE(parallel.all_ranks_equal) << ranks << " ranks";
  }
}

// M = 4, 5, 6 on 1 .. 4 ranks, ragged last rounds included, tied and untied: the same bits over 20 steps.
class SameBits : public ::testing::TestWithParam<std::tuple<int, bool>> {};

TEST_P(SameBits, OnAnyNumberOfRanks) {
  const auto [micro_batches, tied] = GetParam();
  TinyRun run{.micro_batches = micro_batches, .tied = tied};
  const TinyResult serial = train_tiny(run);
  ASSERT_EQ(serial.losses.size(), 20u);
  EXPECT_LT(serial.losses.back(), serial.losses.front());
  expect_same_bits(run, serial, {2, 3, 4});
}

INSTANTIATE_TEST_SUITE_P(MicroBatches, SameBits, ::testing::Combine(::testing::Values(4, 5, 6), ::testing::Bool()));

TEST(Equality, Bf16HasTheSameBitsOnAnyNumberOfRanks) {
  TinyRun run{.micro_batches = 5, .bf16 = true};
  const TinyResult serial = train_tiny(run);
  EXPECT_LT(serial.losses.back(), serial.losses.front());
  expect_same_bits(run, serial, {2, 4});
}

// Masks follow from the sample, not from the rank that works on it.
TEST(Equality, Gpt2WithDropoutHasTheSameBitsOnAnyNumberOfRanks) {
  TinyRun run{.micro_batches = 5, .gpt2 = true};
  const TinyResult serial = train_tiny(run);
  EXPECT_LT(serial.losses.back(), serial.losses.front());
  expect_same_bits(run, serial, {2, 4});
  run.overrides = {"model.hidden_dropout=0", "model.attention_dropout=0"};
  EXPECT_NE(train_tiny(run).losses, serial.losses) << "nothing was dropped";
  run.overrides = {"training.seed=12"};
  EXPECT_NE(train_tiny(run).losses, serial.losses);
}

// Reducing once a step sums in another tree: equal within the design's tolerances, and bit-equal to itself.
TEST(Equality, ReducingOnceAStepStaysWithinTolerance) {
  TinyRun run{.ranks = 3, .micro_batches = 5, .steps = 5, .reduce_each_micro_batch = false};
  const TinyResult once = train_tiny(run), again = train_tiny(run);
  EXPECT_EQ(once.losses, again.losses);
  EXPECT_EQ(once.weights_digest, again.weights_digest);
  EXPECT_TRUE(once.all_ranks_equal);
  run.reduce_each_micro_batch = true;
  const TinyResult each = train_tiny(run);
  EXPECT_NEAR(once.losses[0], each.losses[0], 1e-6 * each.losses[0]);
  EXPECT_NEAR(once.gradient_norms[0], each.gradient_norms[0], 2e-6 * each.gradient_norms[0]);
  EXPECT_NEAR(once.losses[4], each.losses[4], 1e-4 * each.losses[4]);
}

TEST(Equality, HowManyGradientsMayWaitForReductionChangesNoBit) {
  TinyRun run{.ranks = 2, .micro_batches = 4, .steps = 5};
  run.overrides = {"distributed.gradient_slots=1"};
  const TinyResult one = train_tiny(run);
  run.overrides = {"distributed.gradient_slots=4"};
  const TinyResult four = train_tiny(run);
  EXPECT_EQ(one.losses, four.losses);
  EXPECT_EQ(one.weights_digest, four.weights_digest);
}

TEST(Equality, TheFirstLossIsThatOfAnUntrainedModel) {
  const TinyResult result = train_tiny({.steps = 1, .overrides = {"training.warmup_steps=0"}});
  EXPECT_NEAR(result.losses[0], std::log(257.0), 0.05);
}

}  // namespace
}  // namespace trireme::testing
