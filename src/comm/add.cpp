#include "comm/add.h"

#include <cstring>

#include "base/error.h"

namespace trireme::comm {
namespace {

template <class T>
void add(float* __restrict sum, const T* __restrict values, std::int64_t numel) {
  for (std::int64_t i = 0; i < numel; ++i) sum[i] += static_cast<float>(values[i]);
}

void widen(float* __restrict sum, const bfloat16* __restrict values, std::int64_t numel) {
  for (std::int64_t i = 0; i < numel; ++i) sum[i] = static_cast<float>(values[i]);
}

}  // namespace

void add_values(float* sum, const std::byte* values, DType dtype, std::int64_t numel, bool overwrite) {
  TRIREME_CHECK(dtype == DType::f32 || dtype == DType::bf16, "slots are float32 or bfloat16");
  if (dtype == DType::f32) {
    if (overwrite) {
      std::memcpy(sum, values, static_cast<std::size_t>(numel) * sizeof(float));
    } else {
      add(sum, reinterpret_cast<const float*>(values), numel);
    }
  } else {
    const auto* narrow = reinterpret_cast<const bfloat16*>(values);
    if (overwrite) {
      widen(sum, narrow, numel);
    } else {
      add(sum, narrow, numel);
    }
  }
}

}  // namespace trireme::comm
