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

config::Plan chosen(const std::string& device, int ranks_here, int devices) {
  return train::with_device(plan_on(device), {8, "", ranks_here}, devices);
}

TEST(AutomaticDevice, IsCudaWhereEachRankOfTheMachineHasADevice) {
  using config::Device;
  EXPECT_EQ(plan_on("auto").training.device, Device::automatic);
  EXPECT_EQ(chosen("auto", 1, 0).training.device, Device::cpu);
  EXPECT_EQ(chosen("auto", 1, 1).training.device, Device::cuda);
  EXPECT_EQ(chosen("auto", 2, 1).training.device, Device::cpu);
  EXPECT_EQ(chosen("auto", 2, 4).training.device, Device::cuda);
  for (const int devices : {0, 8}) {  // what is said stays
    EXPECT_EQ(chosen("cpu", 1, devices).training.device, Device::cpu);
    EXPECT_EQ(chosen("gpu", 1, devices).training.device, Device::cuda);
  }
  EXPECT_EQ(chosen("auto", 2, 1).notices.size(), plan_on("auto").notices.size() + (kernels::has_driver() ? 1 : 0));
}

// Where there is none it is the run on the CPU, bit for bit, and one that may go on from its checkpoints.
TEST(AutomaticDevice, TrainsAsThatWhichItBecomes) {
  if (kernels::num_devices() > 0) GTEST_SKIP() << "this machine has CUDA devices";
  const TinyRun run{.steps = 3};
  EXPECT_EQ(train_tiny(with(run, {"training.device=auto"})).weights_digest, train_tiny(run).weights_digest);
  config::Plan cpu = train::with_device(plan_on("auto"), 1);
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

class DeviceAutomatic : public ::testing::Test {};

TEST_F(DeviceAutomatic, IsCudaWhereThereIsACard) {
  if (kernels::num_devices() == 0) GTEST_SKIP() << "no CUDA device here: " << kernels::why_no_device();
  const TinyRun run{.steps = 3};
  EXPECT_EQ(train_tiny(with(run, {"training.device=auto"})).weights_digest,
            train_tiny(with(run, {"training.device=cuda"})).weights_digest);
}

}  // namespace
}  // namespace trireme::testing
