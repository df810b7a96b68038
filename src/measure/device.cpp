#include "measure/device.h"

#include "base/cpu.h"
#include "kernels/device.h"

namespace trireme::measure {

std::string card_name(bool on_device) {
  return on_device ? kernels::device_facts(0).name : processor_name();
}

}  // namespace trireme::measure
