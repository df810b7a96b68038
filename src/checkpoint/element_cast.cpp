#include "checkpoint/element_cast.h"

#include <bit>
#include <cstring>

#include "base/error.h"

namespace trireme::checkpoint {
namespace {

// fp16 is 1 sign bit, 5 of exponent (bias 15), 10 of mantissa; fp32 1, 8 (bias 127), 23.
float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16, exponent = (half >> 10) & 31u, mantissa = half & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | mantissa << 13);
  if (exponent > 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  const float value = static_cast<float>(mantissa) * 0x1p-24f;
  return sign != 0 ? -value : value;
}

std::uint16_t float_to_half(float value) {
  const auto word = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (word >> 16) & 0x8000u, magnitude = word & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // 65520 and more round to infinity
  if (magnitude < 0x38800000u) {  // below 2^-14: units of 2^-24, rounded by the addition
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
  }
  const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<std::uint16_t>(sign | ((rounded >> 13) - (112u << 10)));
}

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
    case DType::f16: cast<std::uint16_t, float>(from, n, out, half_to_float); return;
    case DType::f64: cast<double, float>(from, n, out, [](double value) { return static_cast<float>(value); }); return;
    default: TRIREME_CHECK(false, "no type of weights");
  }
}

void from_float(DType dtype, const float* from, std::int64_t n, std::byte* to) {
  const auto* in = reinterpret_cast<const std::byte*>(from);
  switch (dtype) {
    case DType::f32: std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(float)); return;
    case DType::bf16: cast<float, bfloat16>(in, n, to, [](float value) { return bfloat16(value); }); return;
    case DType::f16: cast<float, std::uint16_t>(in, n, to, float_to_half); return;
    default: TRIREME_CHECK(false, "no type that weights are written in");
  }
}

}  // namespace trireme::checkpoint
