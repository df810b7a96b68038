// Where a benchmark runs.
#pragma once
#include <string>

namespace trireme::measure {

// "NVIDIA H200", or the processor's name.
std::string card_name(bool on_device);

}  // namespace trireme::measure
