// The launches that device_kernels.h measures.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "layout/dtype.h"

namespace trireme::measure {

struct FreeOnDevice {
  void operator()(std::byte* memory) const { kernels::free_on_device(memory); }
};
using DeviceMemory = std::unique_ptr<std::byte, FreeOnDevice>;

template <class T>
DeviceMemory on_device(const std::vector<T>& values) {
  const auto bytes = static_cast<std::int64_t>(values.size() * sizeof(T));
  DeviceMemory memory(kernels::allocate_on_device(bytes));
  kernels::copy_now(memory.get(), values.data(), bytes);
  return memory;
}

enum class Kind { normal, positive };

// Of random numbers.
struct Array {
  DType dtype;
  std::int64_t count;
  Kind kind = Kind::normal;
};

struct Case {
  std::string kernel, dtype, sizes;
  std::int64_t bytes;  // the fewest that it moves
  std::vector<Array> arrays;
  std::function<void(std::byte* const* arrays)> run;  // one launch, on arrays in the order of `arrays`
};

Case copy_case(std::int64_t elements);  // bf16
std::vector<Case> device_cases();       // every kernel but products and attention; they hold memory of the device

}  // namespace trireme::measure
