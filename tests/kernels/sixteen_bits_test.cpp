// What bf16 and fp16 promise alike, at every level that the CPU has: values lie in 16 bits, and sums are fp32's.
#include <cmath>
#include <limits>

#include "kernels/support.h"

namespace trireme::kernels {
namespace {

template <class T>
class SixteenBits : public ::testing::Test {};
using NarrowTypes = ::testing::Types<bfloat16, float16>;
TYPED_TEST_SUITE(SixteenBits, NarrowTypes);

template <class T>
T from_bits(std::uint32_t bits) {
  T value;
  value.bits = static_cast<std::uint16_t>(bits);
  return value;
}

template <class T>
std::vector<T> every_value() {
  std::vector<T> values;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) values.push_back(from_bits<T>(bits));
  return values;
}

// All halves between two neighbours, the floats beside them, and random floats.
template <class T>
std::vector<float> values_to_round(Numbers& numbers) {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> x{0.0f, -0.0f, 1.0f, infinity, -infinity, nan, -nan, 3.4e38f, 1e-45f, -1e-40f, 65519.0f, 65520.0f};
  for (std::uint32_t bits = 0; bits < 0xffff; ++bits) {
    const float low = from_bits<T>(bits), high = from_bits<T>(bits + 1);
    const auto middle = static_cast<float>((static_cast<double>(low) + high) / 2);
    if (!std::isfinite(middle)) continue;
    x.insert(x.end(), {low, middle, std::nextafter(middle, -infinity), std::nextafter(middle, infinity)});
  }
  for (int i = 0; i < 20'000; ++i) {
    x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(numbers.below(std::int64_t{1} << 32))));
  }
  return x;
}

TYPED_TEST(SixteenBits, CastsHaveTheBitsOfTheValueType) {
  using T = TypeParam;
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  const std::vector<float> x = values_to_round<T>(numbers);
  const std::vector<T> all = every_value<T>();
  for (const Level level : levels_here()) {
    std::vector<T> narrow(x.size());
    table<T>(level).cast_from_float(std::ssize(x), x.data(), narrow.data());
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(narrow[i].bits, T(x[i]).bits) << std::hexfloat << x[i] << " at " << to_string(level);
    }
    std::vector<float> wide(all.size());
    table<T>(level).cast_to_float(std::ssize(all), all.data(), wide.data());
    for (std::size_t i = 0; i < all.size(); ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]), std::bit_cast<std::uint32_t>(static_cast<float>(all[i])))
          << i << " at " << to_string(level);
    }
  }
}

TYPED_TEST(SixteenBits, AccumulateAddsOrOverwrites) {
  using T = TypeParam;
  for (const Level level : levels_here()) {
    const std::vector<T> slot(37, T(1.5f));
    std::vector<float> sum(37, 0.25f);
    table<T>(level).accumulate(37, slot.data(), sum.data(), false);
    EXPECT_EQ(sum, std::vector<float>(37, 1.75f));
    std::fill(sum.begin(), sum.end(), std::numeric_limits<float>::quiet_NaN());
    table<T>(level).accumulate(37, slot.data(), sum.data(), true);
    EXPECT_EQ(sum, std::vector<float>(37, 1.5f));
    table<T>(level).accumulate(0, nullptr, nullptr, false);
    const std::vector<T> other(37, T(2.0f));
    const T* const both[] = {slot.data(), other.data()};
    table<T>(level).accumulate_all(37, 2, both, DType::f32, DType::f32, sum.data(), false);
    EXPECT_EQ(sum, std::vector<float>(37, 5.0f));
    table<T>(level).accumulate_all(37, 2, both, DType::f32, DType::f32, sum.data(), true);
    EXPECT_EQ(sum, std::vector<float>(37, 3.5f));
  }
}

// Each slot to the wire's type, and after each addition the sum to its own.
TYPED_TEST(SixteenBits, AccumulateRoundsSlotsAndSums) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  constexpr std::int64_t n = 1041;
  const auto a = numbers.normal<float>(n), b = numbers.normal<float>(n), before = numbers.normal<float>(n);
  const float* const slots[] = {a.data(), b.data()};
  for (const Level level : levels_here()) {
    for (const bool overwrite : {false, true}) {
      std::vector<float> wide = before;
      std::vector<bfloat16> half(before.begin(), before.end());
      table<float>(level).accumulate_all(n, 2, slots, dtype_of<TypeParam>, DType::f32, wide.data(), overwrite);
      table<float>(level).accumulate_all(n, 2, slots, dtype_of<TypeParam>, DType::bf16, half.data(), overwrite);
      for (std::int64_t i = 0; i < n; ++i) {
        const float first = TypeParam(a[i]), second = TypeParam(b[i]);
        ASSERT_EQ(wide[i], (overwrite ? first : before[i] + first) + second) << i << " at " << to_string(level);
        const bfloat16 one(overwrite ? first : bfloat16(before[i]) + first);
        ASSERT_EQ(half[i].bits, bfloat16(one + second).bits) << i << " at " << to_string(level);
      }
    }
  }
}

constexpr std::int64_t kOnes = 3008;  // sums of 1 stop at 256 in bf16, at 2048 in fp16

TYPED_TEST(SixteenBits, EmbeddingGradientsAddUpInFloat) {
  using T = TypeParam;
  constexpr std::int64_t C = 5;
  const std::vector<std::int32_t> ids(kOnes, 0);
  const std::vector<T> dy(kOnes * C, T(1.0f));
  for (const Level level : levels_here()) {
    std::vector<T> dw(C);
    std::vector<char> workspace(embedding_workspace(kOnes, 1, C));
    table<T>(level).embedding_backward(kOnes, C, 1, ids.data(), dy.data(), dw.data(), false, workspace.data());
    EXPECT_EQ(static_cast<float>(dw[C - 1]), static_cast<float>(kOnes));
  }
}

TYPED_TEST(SixteenBits, ProductsAddUpInFloat) {
  using T = TypeParam;
  constexpr std::int64_t m = 3, n = 40;
  const std::vector<T> a(m * kOnes, T(1.0f)), b(n * kOnes, T(1.0f));
  std::vector<T> c(m * n);
  std::vector<float> unrounded(m * n);
  gemm(false, true, m, n, kOnes, a.data(), kOnes, b.data(), kOnes, c.data(), n);
  gemm_unrounded(false, true, m, n, kOnes, a.data(), kOnes, b.data(), kOnes, unrounded.data(), n, false);
  for (std::int64_t i = 0; i < m * n; ++i) {
    EXPECT_EQ(static_cast<float>(c[i]), static_cast<float>(kOnes));
    EXPECT_EQ(unrounded[i], static_cast<float>(kOnes));
  }
}

// fp16 has few exponents: its subnormals count, and what is too large is infinity.
TEST(Fp16, ProductsTakeSubnormalsAndOverflowToInfinity) {
  constexpr std::int64_t n = 33;
  const std::vector<float16> tiny(n * n, float16(0x1p-24f)), large(n * n, float16(16384.0f));
  std::vector<float16> c(n * n);
  gemm(false, false, n, n, n, tiny.data(), n, large.data(), n, c.data(), n);
  EXPECT_EQ(static_cast<float>(c[n + 1]), n * 0x1p-10f);
  gemm(false, false, n, n, n, tiny.data(), n, std::vector<float16>(n * n, float16(1.0f)).data(), n, c.data(), n);
  EXPECT_EQ(static_cast<float>(c[n + 1]), n * 0x1p-24f);
  gemm(false, false, n, n, n, large.data(), n, large.data(), n, c.data(), n);
  EXPECT_TRUE(std::isinf(static_cast<float>(c[n + 1])));
  gemm(false, false, n, n, n, large.data(), n, tiny.data(), n, c.data(), n, c.data());
  EXPECT_TRUE(std::isinf(static_cast<float>(c[n + 1]))) << "infinity and a number";
}

}  // namespace
}  // namespace trireme::kernels
