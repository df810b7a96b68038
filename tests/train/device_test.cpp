// Runs on a CUDA device beside those of the CPU, and beside themselves.
#include <gtest/gtest.h>

#include <cmath>

#include "base/failpoint.h"
#include "kernels/device.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"
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

TEST_F(DeviceTraining, ResumesWithTheSameBits) {
  const TemporaryFolder folder;
  const TinyRun run = on_device({.steps = 8, .bf16 = true});
  const TinyResult whole = train_tiny(run);
  TinyRun part = run;
  part.output_dir = folder.path() / "run";
  part.stop_at = [](int, std::int64_t step) { return step == 3; };
  EXPECT_TRUE(train_tiny(part).stopped);
  part.stop_at = nullptr;
  EXPECT_EQ(train_tiny(part).weights_digest, whole.weights_digest);
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
  const TinyRun run{.micro_batches = 1, .steps = 4}, skips = with(run, {"training.nonfinite_gradients=skip"});
  const std::string text = expect_error(1302, [&] { spoiled(on_device(run)); });
  EXPECT_NE(text.find("the gradient of model.layers.1.mlp.down_proj.weight is not finite"), std::string::npos) << text;
  const TinyResult cpu = spoiled(skips), device = spoiled(on_device(skips));
  expect_near(device.losses, cpu.losses, 1e-5);
  EXPECT_EQ(device.learning_rates, cpu.learning_rates);
  EXPECT_FALSE(std::isfinite(device.gradient_norms[1]));
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
