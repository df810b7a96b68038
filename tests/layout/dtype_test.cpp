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

}  // namespace
}  // namespace trireme
