#include "measure/device.h"

#include "base/cpu.h"
#include "kernels/device.h"

namespace trireme::measure {

bool uses_device(const std::string& device) {
  if (device == "cpu") return false;
  if (device == "auto") return kernels::num_devices() > 0;
  kernels::need_device("command line: --device", "is cuda",
                       "use --device cpu, or a machine with a device and its driver");
  return true;
}

std::string card_name(bool on_device) {
  return on_device ? kernels::device_facts(0).name : processor_name();
}

}  // namespace trireme::measure
