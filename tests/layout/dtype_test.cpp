#include "layout/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/expect_error.h"

namespace trireme {
namespace {

using testing::expect_error;

TEST(DTypes, HaveNamesThatLeadBackToThem) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i64, DType::i32, DType::u8}) {
    EXPECT_EQ(dtype_from_safetensors(safetensors_name(dtype)), dtype);
    EXPECT_FALSE(to_string(dtype).empty());
  }
  EXPECT_EQ(to_string(DType::bf16), "bfloat16");
  EXPECT_EQ(safetensors_name(DType::bf16), "BF16");
  EXPECT_EQ(to_string(dtype_of<float16>), "float16");
  EXPECT_EQ(safetensors_name(dtype_of<float16>), "F16");
}

TEST(DTypes, RefuseUnknownNames) {
  for (const char* name : {"", "F31", "f32", "F8_E4M3", "BOOL"}) {
    expect_error(5020, [&] { dtype_from_safetensors(name); });
  }
}

TEST(BFloat16, HoldsEveryOneOfItsValues) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = std::bit_cast<float>(bits << 16);
    const bfloat16 rounded(value);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(rounded)));
    } else {
      EXPECT_EQ(rounded.bits, bits);
    }
  }
}

TEST(BFloat16, RoundsToTheNearestAndTiesToEven) {
  const auto bits = [](std::uint32_t word) { return bfloat16(std::bit_cast<float>(word)).bits; };
  EXPECT_EQ(bits(0x3f807fff), 0x3f80);
  EXPECT_EQ(bits(0x3f808000), 0x3f80);
  EXPECT_EQ(bits(0x3f808001), 0x3f81);
  EXPECT_EQ(bits(0x3f818000), 0x3f82);
  EXPECT_EQ(bits(0x7f7fffff), 0x7f80) << "beyond the largest is infinity";
  EXPECT_EQ(bits(0x7f800001), 0x7fc0) << "a NaN whose low bits are cut stays one";
}

// The magnitude of an fp16, by the definition of the format.
double magnitude_of(std::uint32_t bits) {
  const int exponent = static_cast<int>((bits >> 10) & 31), mantissa = static_cast<int>(bits & 0x3ff);
  if (exponent == 31) return mantissa == 0 ? INFINITY : NAN;
  return exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
}

float16 float16_of(std::uint32_t bits) {
  float16 value;
  value.bits = static_cast<std::uint16_t>(bits);
  return value;
}

TEST(Float16, HoldsEveryOneOfItsValues) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = float16_of(bits);
    const double magnitude = magnitude_of(bits);
    ASSERT_EQ(std::signbit(value), bits >= 0x8000) << bits;
    if (std::isnan(magnitude)) {
      ASSERT_TRUE(std::isnan(value)) << bits;
      ASSERT_EQ(float16(value).bits, bits | 0x200) << "a NaN keeps its payload and becomes quiet";
    } else {
      ASSERT_EQ(std::abs(value), magnitude) << bits;
      ASSERT_EQ(float16(value).bits, bits);
    }
  }
}

// All halfway cases of either sign, from 2^-25 to that between the largest and 65536, and the floats beside them.
TEST(Float16, RoundsToTheNearestAndTiesToEven) {
  for (std::uint32_t low = 0; low < 0x7c00; ++low) {
    const double above = low == 0x7bff ? 65536.0 : magnitude_of(low + 1);
    const auto middle = static_cast<float>((magnitude_of(low) + above) / 2);  // exact
    const std::uint32_t even = low + (low & 1);
    ASSERT_EQ(float16(middle).bits, even) << middle;
    ASSERT_EQ(float16(std::nextafter(middle, 0.0f)).bits, low) << middle;
    ASSERT_EQ(float16(std::nextafter(middle, INFINITY)).bits, low + 1) << middle;
    ASSERT_EQ(float16(-middle).bits, even | 0x8000u) << middle;
  }
  const auto bits = [](std::uint32_t word) { return float16(std::bit_cast<float>(word)).bits; };
  EXPECT_EQ(bits(0x7f7fffff), 0x7c00) << "beyond the largest is infinity";
  EXPECT_EQ(bits(0xff800000), 0xfc00);
  EXPECT_EQ(bits(0x80000001), 0x8000) << "a float's subnormal is zero";
  EXPECT_EQ(bits(0x7f800001), 0x7e00) << "a NaN whose low bits are cut stays one";
  EXPECT_EQ(bits(0xffc02000), 0xfe01);
}

}  // namespace
}  // namespace trireme
