#include "checkpoint/element_cast.h"

#include <cstring>

#include "base/error.h"

namespace trireme::checkpoint {
namespace {

template <class From, class To, class Cast>
void cast(const std::byte* from, std::int64_t n, std::byte* to, Cast&& cast_one) {
  for (std::int64_t i = 0; i < n; ++i) {
    From value;
    std::memcpy(&value, from + i * static_cast<std::int64_t>(sizeof(From)), sizeof(From));
    const To result = cast_one(value);
    std::memcpy(to + i * static_cast<std::int64_t>(sizeof(To)), &result, sizeof(To));
  }
}

}  // namespace

bool is_weight_type(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16 || dtype == DType::f64;
}

void to_float(DType dtype, const std::byte* from, std::int64_t n, float* to) {
  auto* out = reinterpret_cast<std::byte*>(to);
  switch (dtype) {
    case DType::f32: std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(float)); return;
    case DType::bf16:
      cast<bfloat16, float>(from, n, out, [](bfloat16 value) { return static_cast<float>(value); });
      return;
    case DType::f16:
      cast<float16, float>(from, n, out, [](float16 value) { return static_cast<float>(value); });
      return;
    case DType::f64: cast<double, float>(from, n, out, [](double value) { return static_cast<float>(value); }); return;
    default: TRIREME_CHECK(false, "no type of weights");
  }
}

void from_float(DType dtype, const float* from, std::int64_t n, std::byte* to) {
  const auto* in = reinterpret_cast<const std::byte*>(from);
  switch (dtype) {
    case DType::f32: std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(float)); return;
    case DType::bf16: cast<float, bfloat16>(in, n, to, [](float value) { return bfloat16(value); }); return;
    case DType::f16: cast<float, float16>(in, n, to, [](float value) { return float16(value); }); return;
    default: TRIREME_CHECK(false, "no type that weights are written in");
  }
}

}  // namespace trireme::checkpoint
