// monitor.exposed_communication: what collectives cost a step because nothing hides them.
#include "train/overlap.h"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "base/failpoint.h"
#include "kernels/kernels.h"
#include "models/model.h"
#include "support/temporary_folder.h"
#include "train/run_output.h"
#include "train/tiny_run.h"

namespace trireme::testing {
namespace {

struct Measured {
  train::Overlap overlap;
  engine::StepPlan plan;
};

// A Llama of four blocks whose weights two ranks share, on one micro-batch each.
struct Shared {
  Chain chain;
  std::vector<std::int32_t> zeros, positions;
  Batch batch;
  engine::EngineOptions options{
      .micro_batch = {1, 16}, .split = {2, 2}, .sharding = {.parameters = true, .gradients = true, .optimizer = true}};
  explicit Shared(int width = 32, int vocabulary = 64) : zeros(16, 0), positions(16) {
    LlamaConfig config;
    config.vocabulary = vocabulary, config.hidden_size = width, config.intermediate_size = 64, config.num_layers = 4;
    config.num_heads = 2, config.num_key_value_heads = 2, config.max_positions = 16;
    chain = make_chain(config, DType::f32);
    for (int t = 0; t < 16; ++t) positions[t] = t;
    batch = {.shape = {1, 16},
             .ids = zeros.data(),
             .labels = zeros.data(),
             .positions = positions.data(),
             .starts = zeros.data()};
  }
};

// Rank 0 of them, under these delays.
Measured measure(int gather_ahead, const std::string& delays) {
  kernels::set_num_threads(1);
  Shared shared;
  shared.options.gather_ahead = gather_ahead;
  const auto comms = comm::make_local(2);
  std::vector<train::Overlap> overlaps(2);
  set_failpoints(delays);
  const auto run = [&](int rank) {
    kernels::set_num_threads(1);
    try {
      overlaps[rank] = train::measure_overlap(shared.chain, shared.options, *comms[rank], {&shared.batch, 1}, 2);
    } catch (const std::exception& error) {
      ADD_FAILURE() << "rank " << rank << ": " << error.what();
      comms[rank]->abort(error.what());
    }
  };
  std::thread other(run, 1);
  run(0);
  other.join();
  set_failpoints("");
  EXPECT_EQ(overlaps[0].step_s, overlaps[1].step_s) << "all ranks say the same";
  return {overlaps[0], engine::plan_step(shared.chain, shared.options, 0)};
}

// What silent steps compute is of the size that it has otherwise, so it takes as long: also where a step before has
// left other things in the places of what was not gathered.
TEST(SilentSteps, ComputeWithNumbersOfTheirSize) {
  kernels::set_num_threads(1);
  Shared shared(512, 256);
  shared.options.may_be_silent = true;
  const auto comms = comm::make_local(2);
  const auto run = [&](int rank) {
    kernels::set_num_threads(1);
    engine::Engine engine(shared.chain, shared.options, *comms[rank]);
    engine.state().initialize(1);
    engine.refresh_weights();
    engine.step({&shared.batch, 1}, {.learning_rate = 1e-6});
    for (int step = 2; step < 5; ++step) {
      const double own = engine.step({&shared.batch, 1}, {.learning_rate = 1e-6, .step = step, .silent = true}).loss;
      SCOPED_TRACE(::testing::Message() << "rank " << rank << ", step " << step);
      EXPECT_NEAR(own, std::log(256), 1) << "random weights know nothing";
      EXPECT_GT(std::abs(own - std::log(256)), 1e-3) << "it multiplies zeros";
    }
    engine.drain();
  };
  std::thread other(run, 1);
  run(0);
  other.join();
}

// 6 units: embedding, 4 blocks, head. Forward and backward of the first five take 30 ms, each gather 20 ms.
constexpr const char* kDelays =
    "engine.forward=sleep(30)@every;engine.backward=sleep(30)@every;engine.gather=sleep(20)@every";
constexpr double kComputing = 10 * 0.030;

TEST(ExposedCommunication, IsWhatUnitsDoNotCover) {
  const Measured ahead = measure(1, kDelays);
  EXPECT_GE(ahead.overlap.silent_s, kComputing);
  EXPECT_GE(ahead.overlap.communication_s, 10 * 0.020);
  EXPECT_GT(ahead.overlap.hidden_s(), 0.5 * ahead.overlap.communication_s) << ahead.overlap.words();
  EXPECT_FALSE(train::overlap_complaint(ahead.overlap, ahead.plan, 1));
}

// The same delays, but weights are gathered only when they are needed.
TEST(ExposedCommunication, WarnsWhereNothingIsHidden) {
  const Measured late = measure(0, kDelays);
  EXPECT_GE(late.overlap.silent_s, kComputing);
  EXPECT_GE(late.overlap.exposed_s(), 8 * 0.020) << late.overlap.words();
  const auto complaint = train::overlap_complaint(late.overlap, late.plan, 1);
  ASSERT_TRUE(complaint) << late.overlap.words();
  EXPECT_EQ(complaint->code(), 2295);
  EXPECT_NE(std::string(complaint->what()).find("distributed.gather_ahead"), std::string::npos) << complaint->what();
  EXPECT_FALSE(train::overlap_complaint(late.overlap, late.plan, 0)) << "no core is free";
}

// Where the bounds of the warning lie.
TEST(ExposedCommunication, WarnsOnlyAboutWhatMattersAndCouldBeHidden) {
  const engine::StepPlan plan = measure(1, "").plan;
  const auto warns = [&](double step, double silent, double communication, double computing) {
    return train::overlap_complaint({step, silent, communication, computing}, plan, 1).has_value();
  };
  EXPECT_TRUE(warns(2.0, 1.0, 1.0, 1.0));
  EXPECT_TRUE(warns(1.95, 1.0, 1.0, 1.0));
  EXPECT_FALSE(warns(1.85, 1.0, 1.0, 1.0));   // 15 % hidden
  EXPECT_FALSE(warns(1.01, 1.0, 0.01, 1.0));  // it takes no time
  EXPECT_FALSE(warns(10.0, 0.1, 9.99, 0.1));  // nothing to hide it behind but 0.1 s, and most of that is used
  engine::StepPlan serial = plan;
  serial.options.world_size = 1;
  EXPECT_FALSE(train::overlap_complaint({2, 1, 1, 1}, serial, 1)) << "one rank";
}

// Measuring leaves no trace in what is trained, and is told.
TEST(ExposedCommunication, LeavesTheRunAsItIs) {
  const TemporaryFolder folder;
  TinyRun plain{.ranks = 2, .micro_batches = 5, .steps = 3, .output_dir = folder.path() / "plain"};
  plain.overrides = {"distributed.strategy=zero3"};
  TinyRun measured = plain;
  measured.output_dir = folder.path() / "measured";
  measured.overrides.emplace_back("monitor.exposed_communication=2");
  const TinyResult expected = train_tiny(plain), result = train_tiny(measured);
  EXPECT_EQ(result.losses, expected.losses);
  EXPECT_EQ(result.weights_digest, expected.weights_digest);
  EXPECT_EQ(result.samples, expected.samples);
  const auto told = records_of(measured.output_dir, "exposed_communication");
  ASSERT_EQ(told.size(), 1u);
  EXPECT_GT(told[0].at("step_ms").get<double>(), 0);
  EXPECT_GT(told[0].at("communication_ms").get<double>(), 0);
}

}  // namespace
}  // namespace trireme::testing
