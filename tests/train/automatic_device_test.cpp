// training.device=auto: what the machine has, and the same on all ranks.
#include <gtest/gtest.h>

#include <thread>

#include "comm/communicator.h"
#include "kernels/device.h"
#include "support/expect_error.h"
#include "train/device.h"
#include "train/tiny_run.h"

namespace trireme::testing {
namespace {

config::Plan plan_on(const std::string& device) {
  return tiny_plan({.output_dir = "run", .overrides = {"training.device=" + device}});
}

TEST(AutomaticDevice, IsWhatTheMachineHas) {
  EXPECT_EQ(plan_on("auto").training.device, config::Device::automatic);
  const config::Device here = kernels::num_devices() > 0 ? config::Device::cuda : config::Device::cpu;
  EXPECT_EQ(train::with_device(plan_on("auto")).training.device, here);
  EXPECT_EQ(train::with_device(plan_on("cpu")).training.device, config::Device::cpu);
  EXPECT_EQ(train::with_device(plan_on("gpu")).training.device, config::Device::cuda);
}

// Where there is none it is the run on the CPU, bit for bit, and one that may go on from its checkpoints.
TEST(AutomaticDevice, TrainsAsThatWhichItBecomes) {
  if (kernels::num_devices() > 0) GTEST_SKIP() << "this machine has CUDA devices";
  const TinyRun run{.steps = 3};
  EXPECT_EQ(train_tiny(with(run, {"training.device=auto"})).weights_digest, train_tiny(run).weights_digest);
  config::Plan cpu = train::with_device(plan_on("auto"));
  EXPECT_EQ(config::numeric_digest(cpu), config::numeric_digest(plan_on("cpu")));
}

TEST(AutomaticDevice, IsRefusedWhereMachinesDiffer) {
  const auto comms = comm::make_local(3);
  std::string texts[3];
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      const config::Plan plan = plan_on(rank == 2 ? "cuda" : "cpu");
      texts[rank] = expect_error(3064, [&] { train::check_same_device(plan, *comms[rank]); });
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts) {
    EXPECT_NE(text.find("auto is cpu on rank 0's machine, and cuda on that of rank 2"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace trireme::testing
