#include "measure/device.h"

#include "base/cpu.h"

namespace trireme::measure {

std::string card_name(bool on_device) {
  return on_device ? kernels::device_facts(0).name : processor_name();
}

Place::Place(int device, bool high_priority) {
  if (device < 0) return;
  kernels::use_device(device);
  on_.emplace(stream_.emplace(high_priority));
}

}  // namespace trireme::measure
