// Where a benchmark runs.
#pragma once
#include <string>

namespace trireme::measure {

// --device auto, cpu or cuda: whether it is a CUDA device. Error TR3064 or TR3065 where it
// must be and there is none.
// For so many ranks of this machine, one device each.
bool uses_device(const std::string& device, int ranks = 1);

// "NVIDIA H200", or the processor's name.
std::string card_name(bool on_device);

}  // namespace trireme::measure
