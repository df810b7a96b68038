// The fp16 value type: 1 bit of sign, 5 of exponent (bias 15), 10 of mantissa (IEEE 754 binary16).
#pragma once
#include <cstdint>

namespace trireme {

// One formula for a number and for a vector of them (GCC's vector types), so that both give the same bits: Float is
// float or a vector of floats, Word its bits as signed integers. Inlined always, because each kernel level compiles its
// own. A NaN becomes quiet and keeps the upper bits of its payload, as the CPU's instructions (F16C) have it.
//
// half: the bits of an fp16, zero-extended. Exact.
template <class Float, class Word>
__attribute__((always_inline)) inline Float half_to_float(Word half) {
  const Word sign = (half & 0x8000) << 16, magnitude = (half & 0x7fff) << 13;
  const Word normal = magnitude + (112 << 23);  // fp32's bias is 127
  // Below 2^-14 the mantissa counts units of 2^-24: behind a leading 1 of 2^-14, which is taken off again.
  const Float tiny = __builtin_bit_cast(Float, magnitude + (113 << 23)) - 0x1p-14f;
  const Word quiet = magnitude > 0x0f800000 ? Word{} + 0x400000 : Word{};
  const Word special = magnitude | quiet | 0x7f800000;
  const Word finite = magnitude < 0x00800000 ? __builtin_bit_cast(Word, tiny) : normal;
  return __builtin_bit_cast(Float, (magnitude < 0x0f800000 ? finite : special) | sign);
}

// Rounds to nearest even; what rounds beyond 65504 becomes infinity.
template <class Float, class Word>
__attribute__((always_inline)) inline Word float_to_half(Float value) {
  const Word word = __builtin_bit_cast(Word, value), sign = (word >> 16) & 0x8000, magnitude = word & 0x7fffffff;
  const Word limited = magnitude < 0x47800000 ? magnitude : Word{} + 0x47800000;  // 65536 has infinity's bits
  const Word normal = ((limited + 0xfff + ((limited >> 13) & 1)) >> 13) - (112 << 10);
  // Below 2^-14: units of 2^-24, to which the addition rounds.
  const Word tiny = __builtin_bit_cast(Word, __builtin_bit_cast(Float, limited) + 0.5f) - 0x3f000000;
  const Word number = limited < 0x38800000 ? tiny : normal;
  const Word nan = ((magnitude >> 13) & 0x3ff) | 0x7e00;
  return (magnitude > 0x7f800000 ? nan : number) | sign;
}

struct float16 {
  std::uint16_t bits;
  float16() = default;
  explicit float16(float value) : bits(static_cast<std::uint16_t>(float_to_half<float, std::int32_t>(value))) {}
  operator float() const { return half_to_float<float, std::int32_t>(bits); }
};

}  // namespace trireme
