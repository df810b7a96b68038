// Where a benchmark runs.
#pragma once
#include <string>

namespace trireme::measure {

// --device auto, cpu or cuda: whether it is a CUDA device. Error TR3064 or TR3065 where it
// must be and there is none.
bool uses_device(const std::string& device);

// "NVIDIA H200", or the processor's name.
std::string card_name(bool on_device);

}  // namespace trireme::measure
