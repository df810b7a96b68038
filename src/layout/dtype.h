// Element types and the bf16 value type; fp16's is in float16.h.
#pragma once
#include <bit>
#include <cstdint>
#include <string_view>

#include "layout/float16.h"

namespace trireme {

// f64 exists for tests of the kernels; the configuration refuses it.
enum class DType : std::uint8_t { f32, bf16, f16, f64, i64, i32, u8 };

constexpr std::int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
    case DType::i64: return 8;
    case DType::f32:
    case DType::i32: return 4;
    case DType::bf16:
    case DType::f16: return 2;
    case DType::u8: return 1;
  }
  return 0;
}

std::string_view to_string(DType dtype);              // "float32", "bfloat16", ...
std::string_view safetensors_name(DType dtype);       // "F32", "BF16", ...
DType dtype_from_safetensors(std::string_view name);  // throws Error TR5020 for an unknown one

// Round to nearest even; NaN stays NaN.
struct bfloat16 {
  std::uint16_t bits;
  bfloat16() = default;
  explicit bfloat16(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const bool nan = (word & 0x7fffffffu) > 0x7f800000u;
    const std::uint32_t rounded = (word + 0x7fffu + ((word >> 16) & 1u)) >> 16;
    bits = static_cast<std::uint16_t>(nan ? (word >> 16) | 0x40u : rounded);
  }
  operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};

template <class T>
constexpr DType dtype_of = DType::u8;
template <>
inline constexpr DType dtype_of<float> = DType::f32;
template <>
inline constexpr DType dtype_of<double> = DType::f64;
template <>
inline constexpr DType dtype_of<bfloat16> = DType::bf16;
template <>
inline constexpr DType dtype_of<float16> = DType::f16;
template <>
inline constexpr DType dtype_of<std::int64_t> = DType::i64;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::i32;

}  // namespace trireme
