#include "comm/add.h"

#include <cstring>

#include "layout/dispatch.h"

namespace trireme::comm {
namespace {

template <class Sum, class T>
void add(Sum* __restrict sum, const T* __restrict values, std::int64_t numel) {
  for (std::int64_t i = 0; i < numel; ++i) {
    sum[i] = static_cast<Sum>(static_cast<float>(sum[i]) + static_cast<float>(values[i]));
  }
}

template <class To, class T>
void convert(To* __restrict to, const T* __restrict from, std::int64_t numel) {
  for (std::int64_t i = 0; i < numel; ++i) to[i] = static_cast<To>(static_cast<float>(from[i]));
}

// Four at a time: the compiler does not vectorise fp16's conversion by itself.
template <bool kAdds>
void add_or_widen(float* __restrict sum, const float16* __restrict values, std::int64_t numel) {
  typedef float Floats __attribute__((vector_size(16)));
  typedef std::int32_t Words __attribute__((vector_size(16)));
  typedef std::uint16_t Halves __attribute__((vector_size(8)));
  std::int64_t i = 0;
  for (; i + 4 <= numel; i += 4) {
    Halves halves;
    std::memcpy(&halves, values + i, sizeof(halves));
    Floats after = half_to_float<Floats>(__builtin_convertvector(halves, Words));
    if constexpr (kAdds) {
      Floats before;
      std::memcpy(&before, sum + i, sizeof(before));
      after = before + after;
    }
    std::memcpy(sum + i, &after, sizeof(after));
  }
  for (; i < numel; ++i) {
    const float value = static_cast<float>(values[i]);
    sum[i] = kAdds ? sum[i] + value : value;
  }
}

void add(float* sum, const float16* values, std::int64_t numel) {
  add_or_widen<true>(sum, values, numel);
}

void convert(float* to, const float16* from, std::int64_t numel) {
  add_or_widen<false>(to, from, numel);
}

}  // namespace

void add_values(std::byte* sum, DType sum_dtype, const std::byte* values, DType dtype, std::int64_t numel,
                bool overwrite) {
  TRIREME_CHECK(sum_dtype != DType::f64 && dtype != DType::f64, "sums are float32, bfloat16 or float16");
  if (overwrite) return convert_values(values, dtype, sum, sum_dtype, numel);
  dispatch(sum_dtype, [&]<class Sum>(Sum) {
    dispatch(dtype, [&]<class T>(T) { add(reinterpret_cast<Sum*>(sum), reinterpret_cast<const T*>(values), numel); });
  });
}

void convert_values(const std::byte* from, DType from_dtype, std::byte* to, DType to_dtype, std::int64_t numel) {
  if (from_dtype == to_dtype) {
    std::memcpy(to, from, static_cast<std::size_t>(numel * size_of(from_dtype)));
    return;
  }
  dispatch(to_dtype, [&]<class To>(To) {
    dispatch(from_dtype,
             [&]<class T>(T) { convert(reinterpret_cast<To*>(to), reinterpret_cast<const T*>(from), numel); });
  });
}

}  // namespace trireme::comm
