// Gradients that are not finite: every strategy skips the same steps as if they had never been, or stops and says
// where.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "base/failpoint.h"
#include "models/model.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"
#include "train/engine_run.h"
#include "train/resolve.h"
#include "train/run_output.h"

namespace trireme::testing {
namespace {

constexpr int kUnits = 4;  // of the tiny model: embedding, two blocks, head

class NonFinite : public ::testing::Test {
 protected:
  ~NonFinite() override { set_failpoints(""); }
};

// On one rank, the last element of the last parameter of block 1, in the first micro-batch that the rank has in the
// step: the head's gradients come first, then block 1's.
void spoil(int rank, std::int64_t step, const TinyRun& run) {
  const MicroBatchSplit split{run.micro_batches, run.ranks};
  int rounds = 0;
  for (int round = 0; round < split.rounds(); ++round) rounds += split.micro_batch(round, rank) >= 0 ? 1 : 0;
  set_failpoints("engine.gradient=spoil@rank" + std::to_string(rank) + "@" +
                 std::to_string((step - 1) * kUnits * rounds + 2));
}
constexpr const char* kSpoiled = "model.layers.1.mlp.down_proj.weight";

// The rank whose part of the sums has the element that spoil() writes.
int rank_that_finds_it(TinyRun run) {
  run.output_dir = "nowhere";
  const config::Plan plan = tiny_plan(run);
  const data::Dataset dataset(tiny_data(), "train", {16, false});
  const train::ResolvedRun resolved = train::resolve(plan, {dataset.vocabulary(), dataset.num_samples()}, run.ranks);
  const Chain chain = make_chain(resolved.model, resolved.compute_dtype);
  const engine::StepPlan step = engine::plan_step(chain, resolved.engine, 0);
  if (!step.updates_slices()) return 0;
  for (const StorageGroup& group : step.groups) {
    for (std::size_t i = 0; i < group.parameters.size(); ++i) {
      const ParameterSpec& parameter = chain.parameters[group.parameters[i]];
      if (parameter.logical[0].name != kSpoiled) continue;
      return static_cast<int>((group.offsets[i] + parameter.numel() - 1) / group.slice_numel());
    }
  }
  ADD_FAILURE() << "no such tensor";
  return -1;
}

TEST_F(NonFinite, ASkippedStepIsAsIfItsSamplesHadNeverBeen) {
  const TinyRun base{.micro_batches = 5, .steps = 6};
  const EngineResult never_there = run_engines({.run = with_strategy(base, "ddp", 1), .left_out = {3}});
  for (const char* strategy : kStrategies) {
    for (const int ranks : {1, 2, 3}) {
      SCOPED_TRACE(std::string(strategy) + ", " + std::to_string(ranks) + " ranks");
      const TinyRun run = with_strategy(base, strategy, ranks, {"training.nonfinite_gradients=skip"});
      spoil(ranks - 1, 3, run);
      TinyResult skipped = train_tiny(run);
      EXPECT_TRUE(skipped.all_ranks_equal);
      EXPECT_EQ(skipped.weights_digest, never_there.weights_digest);
      ASSERT_EQ(skipped.losses.size(), 6u);
      EXPECT_FALSE(std::isfinite(skipped.gradient_norms[2]));
      EXPECT_EQ(skipped.learning_rates[2], skipped.learning_rates[3]) << "the law stood still";
      skipped.losses.erase(skipped.losses.begin() + 2);
      skipped.gradient_norms.erase(skipped.gradient_norms.begin() + 2);
      for (std::size_t i = 0; i < 5; ++i) {
        EXPECT_EQ(skipped.losses[i], never_there.reports[i].loss) << i;
        EXPECT_EQ(skipped.gradient_norms[i], never_there.reports[i].gradient_norm) << i;
      }
    }
  }
}

TEST_F(NonFinite, StopNamesTheTensorAndTheRankThatFoundIt) {
  const TinyRun base{.micro_batches = 5, .steps = 4};
  for (const char* strategy : kStrategies) {
    for (const int ranks : {1, 2, 3}) {
      SCOPED_TRACE(std::string(strategy) + ", " + std::to_string(ranks) + " ranks");
      const TinyRun run = with_strategy(base, strategy, ranks);
      spoil(ranks - 1, 2, run);
      const std::string text = expect_error(1302, [&] { train_tiny(run); });
      const std::string expected = "step 2: the gradient of " + std::string(kSpoiled) +
                                   " is not finite (found by rank " + std::to_string(rank_that_finds_it(run)) + ")";
      EXPECT_NE(text.find(expected), std::string::npos) << text;
      EXPECT_EQ(text.find("nor is the loss"), std::string::npos) << "the losses were finite: " << text;
    }
  }
}

TEST_F(NonFinite, ASkippedStepIsToldAndCounted) {
  const TemporaryFolder folder;
  TinyRun run = with_strategy({.micro_batches = 4, .steps = 4, .output_dir = folder.path() / "run"}, "zero2", 2,
                              {"training.nonfinite_gradients=skip"});
  spoil(1, 2, run);
  train_tiny(run);
  const auto events = records_of(run.output_dir, "skip"), steps = records_of(run.output_dir, "");
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].at("step"), 2);
  EXPECT_EQ(events[0].at("tensor"), kSpoiled);
  EXPECT_EQ(events[0].at("rank"), rank_that_finds_it(run));
  EXPECT_EQ(events[0].at("skipped_steps"), 1);
  ASSERT_EQ(steps.size(), 4u);
  for (const nlohmann::json& step : steps) {
    EXPECT_EQ(step.at("skipped"), step.at("step") == 2) << step;
    EXPECT_EQ(step.at("skipped_steps"), step.at("step") >= 2 ? 1 : 0) << step;
    EXPECT_EQ(step.at("loss_scale"), 1);
  }
}

// Without a scale that falls to its minimum, skipping would never end.
TEST_F(NonFinite, ARunThatOnlySkipsEnds) {
  for (const int ranks : {1, 2}) {
    const TinyRun run =
        with_strategy({.micro_batches = 2, .steps = 150}, "zero2", ranks, {"training.nonfinite_gradients=skip"});
    set_failpoints("engine.gradient=spoil@rank0@every");
    const std::string text = expect_error(1303, [&] { train_tiny(run); });
    EXPECT_NE(text.find("step 101: "), std::string::npos) << text;
  }
}

// Bias correction, the law and the count go on where they were, on another layout too.
TEST_F(NonFinite, ARunWithASkippedStepResumesBitEqual) {
  const TinyRun base{.micro_batches = 5, .steps = 8};
  const std::vector<std::string> skip = {"training.nonfinite_gradients=skip"};
  const EngineResult never_there = run_engines({.run = with_strategy(base, "ddp", 1), .left_out = {3}});
  const TemporaryFolder folder;
  TinyRun run = with_strategy(base, "zero3", 3, skip);
  run.output_dir = folder.path() / "run";
  run.stop_at = [](int, std::int64_t step) { return step == 5; };
  spoil(0, 3, run);
  EXPECT_TRUE(train_tiny(run).stopped);
  run = with_strategy(base, "zero1", 2, skip);
  run.output_dir = folder.path() / "run";
  const TinyResult resumed = train_tiny(run);
  EXPECT_EQ(resumed.weights_digest, never_there.weights_digest);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(resumed.losses[i], never_there.reports[4 + i].loss);
}

}  // namespace
}  // namespace trireme::testing
