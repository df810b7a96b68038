// Where a benchmark runs.
#pragma once
#include <optional>
#include <string>

#include "engine/memory.h"
#include "kernels/device.h"

namespace trireme::measure {

// "NVIDIA H200", or the processor's name.
std::string card_name(bool on_device);

// While it lives the calling thread's kernels run on a stream of their own of the device, below 0: on the CPU.
class Place {
 public:
  explicit Place(int device, bool high_priority = false);
  const kernels::Stream* stream() const { return stream_ ? &*stream_ : nullptr; }  // nullptr: the CPU
  engine::MemoryKind memory() const { return stream_ ? engine::MemoryKind::device : engine::MemoryKind::host; }

 private:
  std::optional<kernels::Stream> stream_;
  std::optional<kernels::OnStream> on_;
};

}  // namespace trireme::measure
