#include "measure/device.h"

#include "base/cpu.h"
#include "base/error.h"
#include "kernels/device.h"

namespace trireme::measure {

bool uses_device(const std::string& device) {
  if (device == "cpu") return false;
  if (kernels::num_devices() > 0) return true;
  if (device == "auto") return false;
  throw Error(3064, "command line: --device", "is cuda, but there is no CUDA device here: " + kernels::why_no_device(),
              "use --device cpu, or a machine with a device and its driver");
}

std::string card_name(bool on_device) {
  return on_device ? kernels::device_facts(0).name : processor_name();
}

}  // namespace trireme::measure
