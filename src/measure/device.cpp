#include "measure/device.h"

#include "base/cpu.h"
#include "base/error.h"
#include "kernels/device.h"

namespace trireme::measure {

bool uses_device(const std::string& device, int ranks) {
  if (device == "cpu") return false;
  if (device == "auto") return kernels::num_devices() >= ranks;
  kernels::need_device("command line: --device", "is cuda",
                       "use --device cpu, or a machine with a device and its driver");
  if (const int devices = kernels::num_devices(); devices < ranks) {
    throw Error(3064, "command line: --device",
                "is cuda, one device a rank, but of " + std::to_string(ranks) + " there are " + std::to_string(devices),
                "use --ranks " + std::to_string(devices) + ", or --device cpu");
  }
  return true;
}

std::string card_name(bool on_device) {
  return on_device ? kernels::device_facts(0).name : processor_name();
}

}  // namespace trireme::measure
