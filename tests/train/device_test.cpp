// Runs on a CUDA device beside those of the CPU, and beside themselves.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <thread>

#include "base/failpoint.h"
#include "comm/communicator.h"
#include "kernels/device.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"
#include "train/device.h"
#include "train/run_output.h"
#include "train/same_bits.h"
#include "train/tiny_run.h"

namespace trireme::testing {
namespace {

class DeviceTraining : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kernels::num_devices() == 0) GTEST_SKIP() << "no CUDA device here: " << kernels::why_no_device();
  }
};

TinyRun on_device(TinyRun run) {
  return with(std::move(run), {"training.device=cuda"});
}

void expect_near(const std::vector<double>& found, const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], tolerance) << "step " << i + 1;
}

TEST_F(DeviceTraining, HasTheLossesOfTheCpu) {
  for (const bool gpt2 : {false, true}) {  // with dropout: its masks are the same
    SCOPED_TRACE(gpt2 ? "gpt2" : "llama");
    const TinyRun run{.gpt2 = gpt2};
    const TinyResult cpu = train_tiny(run), device = train_tiny(on_device(run));
    expect_near(device.losses, cpu.losses, 1e-5);
    expect_near(device.gradient_norms, cpu.gradient_norms, 1e-3);
  }
}

TEST_F(DeviceTraining, EvaluatesAsTheCpu) {
  const TemporaryFolder folder;
  const TinyRun cpu = with({.steps = 6, .output_dir = folder.path() / "cpu"}, {"training.eval_interval=2"});
  TinyRun device = on_device(cpu);
  device.output_dir = folder.path() / "device";
  train_tiny(cpu), train_tiny(device);
  ASSERT_EQ(evaluation_losses(cpu.output_dir).size(), 3u);
  expect_near(evaluation_losses(device.output_dir), evaluation_losses(cpu.output_dir), 1e-5);
}

TEST_F(DeviceTraining, InBf16HasThemWithinItsRounding) {
  const TinyRun run{.bf16 = true};
  expect_near(train_tiny(on_device(run)).losses, train_tiny(run).losses, 2e-2);
}

TEST_F(DeviceTraining, RepeatsItsBitsAlsoWhereItRecomputes) {
  const TinyRun run = on_device({.bf16 = true});
  const TinyResult plain = train_tiny(run);
  EXPECT_EQ(train_tiny(run).weights_digest, plain.weights_digest) << "a run is not equal to itself";
  for (const char* recompute : {"full", "selective"}) {
    EXPECT_EQ(train_tiny(with(run, {std::string("training.gradient_checkpointing=") + recompute})).weights_digest,
              plain.weights_digest)
        << recompute;
  }
}

TEST_F(DeviceTraining, OtherOrdersOfSumsStayWithinTheRounding) {
  const TinyRun run{.bf16 = true};
  expect_near(train_tiny(with(on_device(run), {"training.deterministic=false"})).losses, train_tiny(run).losses, 2e-2);
}

// Of several micro-batches, whose gradients add up where they are made: to the same bits each time.
TEST_F(DeviceTraining, SumsInPlaceStayWithinTheRounding) {
  for (const char* sums : {"fp32", "bf16"}) {
    for (const auto& [bf16, tied, gpt2] :
         {std::tuple{false, true, false}, {true, true, false}, {true, false, false}, {true, true, true}}) {
      SCOPED_TRACE(::testing::Message() << sums << (bf16 ? ", bf16" : "") << (tied ? ", tied" : "")
                                        << (gpt2 ? ", gpt2" : ""));
      const TinyRun run = with({.reduce_each_micro_batch = false, .tied = tied, .bf16 = bf16, .gpt2 = gpt2},
                               {std::string("training.grad_accum_dtype=") + sums});
      const TinyResult expected = train_tiny(run), found = train_tiny(on_device(run));
      expect_near(found.losses, expected.losses, bf16 || *sums == 'b' ? 3e-2 : 1e-4);
      EXPECT_EQ(train_tiny(on_device(run)).weights_digest, found.weights_digest);
    }
  }
}

const std::vector<std::string> kNarrowState = {"training.master_dtype=bf16", "training.moment_dtype=bf16"};

TEST_F(DeviceTraining, ResumesWithTheSameBits) {
  for (const auto& state : {std::vector<std::string>{}, kNarrowState}) {
    const TemporaryFolder folder;
    const TinyRun run = with(on_device({.steps = 8, .bf16 = true}), state);
    const TinyResult whole = train_tiny(run);
    TinyRun part = run;
    part.output_dir = folder.path() / "run";
    part.stop_at = [](int, std::int64_t step) { return step == 3; };
    EXPECT_TRUE(train_tiny(part).stopped);
    part.stop_at = nullptr;
    EXPECT_EQ(train_tiny(part).weights_digest, whole.weights_digest) << ::testing::PrintToString(state);
  }
}

TEST_F(DeviceTraining, StateInBf16KeepsTheCurve) {
  const TinyRun run = with(with({.bf16 = true}, kNarrowState), {"training.grad_accum_dtype=bf16"});
  const TinyResult device = train_tiny(on_device(run));
  expect_near(device.losses, train_tiny(run).losses, 2e-2);
  EXPECT_EQ(train_tiny(on_device(run)).weights_digest, device.weights_digest) << "not equal to itself";
  expect_near(train_tiny(with(on_device(run), {"distributed.offload_optimizer=cpu"})).losses, device.losses, 1e-2);
}

// AdamW's order of operations is the same on both; what is offloaded moves no bit but those that fused multiply-adds of
// the host's processor round otherwise.
TEST_F(DeviceTraining, OffloadingKeepsTheCurveAndRepeatsItsBits) {
  const TinyRun run = on_device({.bf16 = true});
  const TinyResult plain = train_tiny(run);
  for (const std::vector<std::string>& offload : std::vector<std::vector<std::string>>{
           {"distributed.offload_optimizer=cpu"},
           {"distributed.offload_optimizer=cpu", "distributed.offload_param=cpu", "distributed.strategy=zero3"},
           {"distributed.offload_optimizer=cpu", "training.gradient_clipping=0"},
           {"training.gradient_checkpointing=full", "training.cpu_checkpointing=true"}}) {
    SCOPED_TRACE(::testing::PrintToString(offload));
    const TinyResult offloaded = train_tiny(with(run, offload));
    expect_near(offloaded.losses,
                offload.size() == 2 && offload[1] == "training.gradient_clipping=0"
                    ? train_tiny(with(run, {offload[1]})).losses
                    : plain.losses,
                1e-2);
    EXPECT_EQ(train_tiny(with(run, offload)).weights_digest, offloaded.weights_digest) << "not equal to itself";
  }
}

// The failpoint spoils the second gradient of step 2, block 1's.
TEST_F(DeviceTraining, AStepThatIsNotFiniteIsNamedOrSkipped) {
  struct Reset {
    ~Reset() { set_failpoints(""); }
  } reset;
  const auto spoiled = [](const TinyRun& run) {
    set_failpoints("engine.gradient=spoil@6");  // of four a step
    return train_tiny(run);
  };
  for (const bool in_place : {false, true}) {
    SCOPED_TRACE(in_place ? "in the sums themselves" : "in slots");
    const TinyRun run{.micro_batches = 1, .steps = 4, .reduce_each_micro_batch = !in_place};
    const TinyRun skips = with(run, {"training.nonfinite_gradients=skip"});
    const std::string text = expect_error(1302, [&] { spoiled(on_device(run)); });
    EXPECT_NE(text.find("the gradient of model.layers.1.mlp.down_proj.weight is not finite"), std::string::npos)
        << text;
    const TinyResult cpu = spoiled(skips), device = spoiled(on_device(skips));
    expect_near(device.losses, cpu.losses, 1e-5);
    EXPECT_EQ(device.learning_rates, cpu.learning_rates);
    EXPECT_FALSE(std::isfinite(device.gradient_norms[1]));
  }
}

// And leaves the run as it is.
void measure_communication(const TinyRun& run) {
  const TemporaryFolder folder;
  TinyRun measured = with(run, {"monitor.exposed_communication=2"});
  measured.output_dir = folder.path() / "run";
  const TinyResult result = train_tiny(measured), plain = train_tiny(run);
  expect_same_bits(result, plain);
  const auto events = records_of(measured.output_dir, "exposed_communication");
  ASSERT_EQ(events.size(), 1u);
  const nlohmann::json& event = events[0];
  EXPECT_GT(event.at("step_ms").get<double>(), 0);
  EXPECT_GT(event.at("without_communication_ms").get<double>(), 0);
  EXPECT_GT(event.at("communication_ms").get<double>(), 0);  // of one rank, what the host is told of the step
}

TEST_F(DeviceTraining, TellsWhatCommunicationCosts) {
  measure_communication(on_device({}));
}

TEST_F(DeviceTraining, RefusesMoreRanksThanThereAreDevices) {
  TinyRun run = on_device({});
  run.ranks = run.micro_batches = kernels::num_devices() + 1;
  expect_error(3064, [&] { train_tiny(run); });
}

// Ranks are threads, each with a device.
class DevicesTogether : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kernels::num_devices() < 2) GTEST_SKIP() << "these need two CUDA devices; here are " << kernels::num_devices();
  }
};

// The stand-in for devices has none, which ranks with different programs need.
bool has_nccl() {
  return kernels::device_facts(0).name != "stand-in";
}

TinyRun on_two(TinyRun run, const std::string& strategy) {
  run.ranks = 2;
  return with(on_device(std::move(run)), {"distributed.strategy=" + strategy});
}

// What is planned without the others is what is found with them.
TEST_F(DevicesTogether, AreInReachUnlessToldOtherwise) {
  const auto found = [](const std::string& override) {
    TinyRun run{.output_dir = "run"};
    run.overrides = {"training.device=cuda", override};
    const config::Plan plan = tiny_plan(run);
    const auto comms = comm::make_local(2);
    std::array<int, 2> in_reach{};
    const auto ask = [&](int rank) {
      in_reach[static_cast<std::size_t>(rank)] = train::ranks_in_reach(plan, {2, "", 2, rank}, *comms[rank]);
    };
    std::thread other(ask, 1);
    ask(0);
    other.join();
    EXPECT_EQ(in_reach[0], in_reach[1]);
    EXPECT_EQ(in_reach[0], train::expected_in_reach(plan, {2, "", 2}));
    return in_reach[0];
  };
  EXPECT_EQ(found("distributed.same_host_memory=true"), 2);
  EXPECT_EQ(found("distributed.same_host_memory=false"), 1);
  ::setenv("NCCL_P2P_DISABLE", "1", 1);
  EXPECT_EQ(found("distributed.same_host_memory=true"), 1);
  ::unsetenv("NCCL_P2P_DISABLE");
}

TEST_F(DevicesTogether, HaveTheBitsOfOne) {
  for (const bool bf16 : {false, true}) {
    for (const int micro_batches : {2, 5}) {  // 5: in the last round one of them has nothing to do
      if (micro_batches == 5 && !has_nccl()) continue;
      TinyRun run{.micro_batches = micro_batches, .steps = 6, .bf16 = bf16};
      if (micro_batches == 5 && bf16) run = with(with(run, kNarrowState), {"training.grad_accum_dtype=bf16"});
      const TinyResult one = train_tiny(on_device(run));
      for (const char* strategy : {"ddp", "zero1", "zero2", "zero3", "shard_grad_op", "full_shard"}) {
        SCOPED_TRACE(::testing::Message() << strategy << (bf16 ? ", bf16, " : ", fp32, ") << micro_batches);
        const TinyResult two = train_tiny(on_two(run, strategy));
        EXPECT_EQ(two.losses, one.losses);
        EXPECT_EQ(two.gradient_norms, one.gradient_norms);
        EXPECT_EQ(two.weights_digest, one.weights_digest);
        EXPECT_TRUE(two.all_ranks_equal);
      }
    }
  }
}

// Evaluations and saves in between, lanes that take turns, gathers that come late: the same bits.
TEST_F(DevicesTogether, HaveThemHoweverTheyGather) {
  const TinyRun run =
      with({.micro_batches = 4, .steps = 6, .bf16 = true}, {"training.eval_interval=2", "checkpoint.save_interval=3"});
  const TinyResult one = train_tiny(on_device(run));
  for (const char* overlap : {"true", "false"}) {
    for (const char* strategy : {"zero1", "zero3"}) {
      SCOPED_TRACE(::testing::Message() << strategy << ", overlap_comm " << overlap);
      const TinyResult two =
          train_tiny(with(on_two(run, strategy), {std::string("distributed.overlap_comm=") + overlap,
                                                  "distributed.gather_ahead=2", "distributed.gradient_slots=1"}));
      EXPECT_EQ(two.losses, one.losses);
      EXPECT_EQ(two.weights_digest, one.weights_digest);
    }
  }
}

TEST_F(DevicesTogether, TellWhatCommunicationCosts) {
  for (const char* strategy : {"ddp", "zero3"}) measure_communication(on_two({.micro_batches = 4}, strategy));
}

// Sums of each rank first: another order, and the same on every rank.
TEST_F(DevicesTogether, ReduceOnceAStepWhereTheyMay) {
  const TinyRun run{.micro_batches = 4, .steps = 6, .reduce_each_micro_batch = false};
  const TinyResult ddp = train_tiny(on_two(run, "ddp")), zero1 = train_tiny(on_two(run, "zero1"));
  EXPECT_TRUE(ddp.all_ranks_equal);
  EXPECT_EQ(zero1.losses, ddp.losses);
  EXPECT_EQ(zero1.weights_digest, ddp.weights_digest);
  expect_near(ddp.losses, train_tiny(on_device(run)).losses, 1e-4);
}

TEST_F(DevicesTogether, AddTheirSumsUpInPlace) {
  for (const bool bf16 : {false, true}) {
    const TinyRun run{.micro_batches = 6, .steps = 6, .reduce_each_micro_batch = false, .bf16 = bf16};
    const std::vector<double> expected = train_tiny(run).losses;
    for (const char* strategy : {"ddp", "zero1"}) {
      SCOPED_TRACE(::testing::Message() << strategy << (bf16 ? ", bf16" : ""));
      const TinyResult found = train_tiny(on_two(run, strategy));
      EXPECT_TRUE(found.all_ranks_equal);
      expect_near(found.losses, expected, bf16 ? 3e-2 : 1e-4);
    }
  }
}

TEST_F(DevicesTogether, CheckpointsGoFromTwoToOne) {
  const TemporaryFolder folder;
  TinyRun run{.micro_batches = 4, .steps = 8, .bf16 = true, .output_dir = folder.path() / "run"};
  run.stop_at = [](int, std::int64_t step) { return step == 3; };
  EXPECT_TRUE(train_tiny(on_two(run, "zero3")).stopped);
  run.stop_at = nullptr;
  const TinyResult rest = train_tiny(on_device(run));
  run.output_dir.clear();
  EXPECT_EQ(rest.weights_digest, train_tiny(on_device(run)).weights_digest);
}

// Slices in every replica, summed over the replicas after the last micro-batch: another tree of the same sum.
TEST_F(DevicesTogether, MayBeReplicasOfSlices) {
  if (kernels::num_devices() < 4) GTEST_SKIP() << "this needs four CUDA devices; here are " << kernels::num_devices();
  for (const int micro_batches : {6, 8}) {
    if (micro_batches == 6 && !has_nccl()) continue;
    TinyRun run{.micro_batches = micro_batches, .steps = 5};
    const TinyResult one = train_tiny(on_device(run));
    run.ranks = 4;
    for (const char* strategy : {"hybrid_shard", "zero1", "zero2"}) {
      SCOPED_TRACE(strategy);
      const TinyRun replicas =
          with(on_device(run), {std::string("distributed.strategy=") + strategy, "distributed.dp_replicate=2"});
      const TinyResult four = train_tiny(replicas);
      EXPECT_TRUE(four.all_ranks_equal);
      EXPECT_EQ(four.weights_digest, train_tiny(replicas).weights_digest) << "the same run again";
      expect_near(four.losses, one.losses, 1e-4);
    }
  }
}

// A rank that fails amid a step frees the other, whose stream and host wait for it.
TEST_F(DevicesTogether, EndTogether) {
  for (const char* strategy : {"ddp", "zero3"}) {
    set_failpoints("engine.reduce=throw@rank1@9");
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_ANY_THROW(train_tiny(on_two({.micro_batches = 4}, strategy))) << strategy;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10)) << strategy;
    set_failpoints("");
  }
  EXPECT_EQ(train_tiny(on_two({.micro_batches = 4, .steps = 2}, "zero3")).last_step, 2) << "the devices are of use on";
}

// The CPU's run goes on from a device's checkpoint, whose numbers it has.
TEST_F(DeviceTraining, CheckpointsGoFromDeviceToCpu) {
  const TemporaryFolder folder;
  TinyRun run{.steps = 8, .output_dir = folder.path() / "run"};
  run.stop_at = [](int, std::int64_t step) { return step == 4; };
  train_tiny(on_device(run));
  run.stop_at = nullptr;
  const TinyResult rest = train_tiny(run);
  const TinyResult whole = train_tiny({.steps = 8});
  ASSERT_EQ(rest.last_step, 8);
  EXPECT_NEAR(rest.losses.back(), whole.losses.back(), 1e-5);
}

}  // namespace
}  // namespace trireme::testing
