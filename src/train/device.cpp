#include "train/device.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "comm/collectives.h"
#include "engine/peer_copies.h"
#include "kernels/device.h"
#include "kernels/kernels.h"

namespace trireme::train {

namespace {

constexpr int kLeastCapability = 8;  // major: the oldest that libtrireme_cuda.so is compiled for

void check_capability(const std::string& place, int device) {
  const kernels::DeviceFacts facts = kernels::device_facts(device);
  if (facts.major >= kLeastCapability) return;
  throw Error(3064, place,
              facts.name + " has compute capability " + std::to_string(facts.major) + "." +
                  std::to_string(facts.minor) + "; the kernels need 8.0",
              "use an A100, an H100 or a later device");
}

}  // namespace

int usable_devices() {
  int count = 0;
  for (const int devices = kernels::num_devices(); count < devices; ++count) {
    if (kernels::device_facts(count).major < kLeastCapability) break;
  }
  return count;
}

config::Plan with_device(config::Plan plan, const Ranks& ranks, int devices) {
  config::Device& device = plan.training.device;
  if (device != config::Device::automatic) return plan;
  device = devices >= ranks.per_machine ? config::Device::cuda : config::Device::cpu;
  if (device == config::Device::cuda || !kernels::has_driver()) return plan;
  const std::string why = devices > 0 ? std::to_string(ranks.per_machine) + " ranks on this machine, and " +
                                            std::to_string(devices) + " usable CUDA device" + (devices > 1 ? "s" : "")
                                      : "no usable CUDA device: " + kernels::why_no_device();
  plan.notices.push_back("training.device=auto is cpu: " + why);
  return plan;
}

std::string kernel_level_of(const config::Plan& plan) {
  TRIREME_CHECK(plan.training.device != config::Device::automatic, "the device is chosen first");
  if (plan.training.device == config::Device::cuda) return "cuda";
  return std::string(kernels::to_string(kernels::level()));
}

void check_device(const config::Plan& plan, const Ranks& ranks) {
  if (plan.training.device == config::Device::cpu) return;
  const auto origin = plan.origins.find("training.device");
  const std::string place = origin == plan.origins.end() ? "training.device" : origin->second.place;
  kernels::need_device(place, "training.device is cuda",
                       "use training.device=cpu, or a machine with a device and its driver");
  const int devices = kernels::num_devices();
  if (ranks.local_rank >= devices) {
    throw Error(3064, place,
                "training.device is cuda, one device a rank, but of " + std::to_string(ranks.per_machine) +
                    " ranks on this machine rank " + std::to_string(ranks.local_rank) + " sees " +
                    std::to_string(devices) + (devices == 1 ? " CUDA device" : " CUDA devices"),
                "start as many ranks as there are devices (`trireme launch --nproc-per-node " +
                    std::to_string(devices) +
                    "`), which must all be in CUDA_VISIBLE_DEVICES; or use training.device=cpu");
  }
  check_capability(place, ranks.local_rank);
}

void check_same_device(const config::Plan& plan, comm::Communicator& comm) {
  const std::vector<config::Device> all = comm::gathered(comm, plan.training.device);
  const auto other = std::find_if(all.begin(), all.end(), [&](config::Device device) { return device != all[0]; });
  if (other == all.end()) return;
  const auto name = [](config::Device device) { return device == config::Device::cuda ? "cuda" : "cpu"; };
  throw Error(3064, "training.device",
              std::string("auto is ") + name(all[0]) + " on rank 0's machine, and " + name(*other) +
                  " on that of rank " + std::to_string(other - all.begin()),
              "say which: training.device=cpu, or cuda and a device for each rank");
}

namespace {
bool may_reach(const config::Plan& plan, const Ranks& ranks) {
  const char* disabled = std::getenv("NCCL_P2P_DISABLE");
  return plan.training.device == config::Device::cuda && plan.distributed.same_host_memory && ranks.count > 1 &&
         (disabled == nullptr || std::string_view(disabled) == "0");
}
}  // namespace

int expected_in_reach(const config::Plan& plan, const Ranks& ranks) {
  return may_reach(plan, ranks) && kernels::devices_reach_each_other(ranks.per_machine) ? ranks.per_machine : 1;
}

int ranks_in_reach(const config::Plan& plan, const Ranks& ranks, comm::Communicator& comm) {
  if (!may_reach(plan, ranks)) return 1;
  kernels::use_device(ranks.local_rank);
  return engine::ranks_in_reach(comm, ranks.per_machine);
}

bool uses_device(const std::string& device, int ranks) {
  const std::string place = "command line: --device";
  if (device == "cpu" || (device == "auto" && kernels::num_devices() < ranks)) return false;
  kernels::need_device(place, "is cuda", "use --device cpu, or a machine with a device and its driver");
  if (const int devices = kernels::num_devices(); devices < ranks) {
    throw Error(3064, place,
                "is cuda, one device a rank, but of " + std::to_string(ranks) + " there are " + std::to_string(devices),
                "use --ranks " + std::to_string(devices) + ", or --device cpu");
  }
  for (int i = 0; i < ranks; ++i) check_capability(place, i);
  return true;
}

std::int64_t free_device_memory(const config::Plan& plan, const Ranks& ranks) {
  if (plan.training.device != config::Device::cuda || kernels::num_devices() <= ranks.local_rank) return 0;
  return kernels::device_facts(ranks.local_rank).memory_bytes - kernels::device_memory_in_use(ranks.local_rank);
}

}  // namespace trireme::train
