#include "comm/add.h"

#include "base/error.h"

namespace trireme::comm {
namespace {

template <class T>
void add(float* __restrict sum, const T* __restrict values, std::int64_t numel) {
  for (std::int64_t i = 0; i < numel; ++i) sum[i] += static_cast<float>(values[i]);
}

template <class T>
void widen(float* __restrict sum, const T* __restrict values, std::int64_t numel) {
  for (std::int64_t i = 0; i < numel; ++i) sum[i] = static_cast<float>(values[i]);
}

template <class T>
void add_or_widen(float* sum, const std::byte* values, std::int64_t numel, bool overwrite) {
  const auto* typed = reinterpret_cast<const T*>(values);
  if (overwrite) {
    widen(sum, typed, numel);
  } else {
    add(sum, typed, numel);
  }
}

}  // namespace

void add_values(float* sum, const std::byte* values, DType dtype, std::int64_t numel, bool overwrite) {
  switch (dtype) {
    case DType::f32: return add_or_widen<float>(sum, values, numel, overwrite);
    case DType::bf16: return add_or_widen<bfloat16>(sum, values, numel, overwrite);
    case DType::f16: return add_or_widen<float16>(sum, values, numel, overwrite);
    default: fail_check("dtype", __FILE__, __LINE__, "slots are float32, bfloat16 or float16");
  }
}

}  // namespace trireme::comm
