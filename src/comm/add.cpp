#include "comm/add.h"

#include <cstring>

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

// Four at a time: the compiler does not vectorise fp16's conversion by itself.
void add_or_widen_half(float* sum, const std::byte* values, std::int64_t numel, bool overwrite) {
  typedef float Floats __attribute__((vector_size(16)));
  typedef std::int32_t Words __attribute__((vector_size(16)));
  typedef std::uint16_t Halves __attribute__((vector_size(8)));
  std::int64_t i = 0;
  for (; i + 4 <= numel; i += 4) {
    Halves halves;
    std::memcpy(&halves, values + i * 2, sizeof(halves));
    Floats after = half_to_float<Floats>(__builtin_convertvector(halves, Words));
    if (!overwrite) {
      Floats before;
      std::memcpy(&before, sum + i, sizeof(before));
      after = before + after;
    }
    std::memcpy(sum + i, &after, sizeof(after));
  }
  add_or_widen<float16>(sum + i, values + i * 2, numel - i, overwrite);
}

}  // namespace

void add_values(float* sum, const std::byte* values, DType dtype, std::int64_t numel, bool overwrite) {
  switch (dtype) {
    case DType::f32: return add_or_widen<float>(sum, values, numel, overwrite);
    case DType::bf16: return add_or_widen<bfloat16>(sum, values, numel, overwrite);
    case DType::f16: return add_or_widen_half(sum, values, numel, overwrite);
    default: fail_check("dtype", __FILE__, __LINE__, "slots are float32, bfloat16 or float16");
  }
}

}  // namespace trireme::comm
