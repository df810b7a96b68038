// Sums, scales and casts have the bits of the CPU's; the cap of logits is the formula's.
#include <memory>

#include "device/shifted.h"

namespace trireme::kernels {
namespace {

class DeviceElementwise : public OnDevice {};

constexpr std::int64_t kSizes[] = {1, 7, 8, 63, 4096, 8193, 100003};

template <class T>
using Arrays = std::vector<std::vector<T>>;

TEST_F(DeviceElementwise, SumsAndScalesHaveTheBitsOfTheCpu) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  for_each_type([&]<class T>() {
    for (const std::int64_t n : kSizes) {
      SCOPED_TRACE(n);
      const auto a = numbers.normal<T>(n), b = numbers.normal<T>(n);
      const Arrays<T> written = same_anywhere([&](std::int64_t shift) {
        const Shifted<T> on_a(a, shift), on_b(b, shift), out(n, shift), scaled(a, shift), b_for_out(b, shift);
        table<T>().add(n, on_a, on_b, out);
        table<T>().add(n, on_a, b_for_out, b_for_out);
        table<T>().scale(n, 0.3, scaled);
        return Arrays<T>{out.host(), b_for_out.host(), scaled.host()};
      });
      std::vector<T> sum(n), scaled = a;
      table<T>(level()).add(n, a.data(), b.data(), sum.data());
      table<T>(level()).scale(n, 0.3, scaled.data());
      EXPECT_TRUE(same_bits(written[0], sum));
      EXPECT_TRUE(same_bits(written[1], sum));
      EXPECT_TRUE(same_bits(written[2], scaled));
    }
  });
}

TEST_F(DeviceElementwise, AccumulationAndCastsHaveTheBitsOfTheCpu) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  for_each_type([&]<class T>() {
    for (const std::int64_t n : kSizes) {
      SCOPED_TRACE(n);
      const auto slot = numbers.normal<T>(n);
      const auto before = numbers.normal<float>(n);
      const Arrays<float> written = same_anywhere([&](std::int64_t shift) {
        const Shifted<T> on_slot(slot, shift);
        const Shifted<float> sum(before, shift), copied(n, shift), cast(n, 0);
        table<T>().accumulate(n, on_slot, sum, false);
        table<T>().accumulate(n, on_slot, copied, true);
        table<T>().cast_to_float(n, on_slot, cast);
        return Arrays<float>{sum.host(), copied.host(), cast.host()};
      });
      const Arrays<T> rounded = same_anywhere([&](std::int64_t shift) {
        const Shifted<float> x(before, shift);
        const Shifted<T> y(n, shift);
        table<T>().cast_from_float(n, x, y);
        return Arrays<T>{y.host()};
      });
      std::vector<float> sum = before, copied(n);
      std::vector<T> cast(n);
      table<T>(level()).accumulate(n, slot.data(), sum.data(), false);
      table<T>(level()).cast_to_float(n, slot.data(), copied.data());
      table<T>(level()).cast_from_float(n, before.data(), cast.data());
      EXPECT_TRUE(same_bits(written[0], sum));
      EXPECT_TRUE(same_bits(written[1], copied));
      EXPECT_TRUE(same_bits(written[2], copied));
      EXPECT_TRUE(same_bits(rounded[0], cast));
    }
  });
}

TEST_F(DeviceElementwise, AccumulationOfManySlotsIsOneAfterAnother) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  for_each_type([&]<class T>() {
    for (const int count : {1, 2, 3, 8, 9, 17}) {
      SCOPED_TRACE(count);
      constexpr std::int64_t n = 5003;
      std::vector<std::vector<T>> slots;
      std::vector<const T*> list;
      for (int i = 0; i < count; ++i) list.push_back(slots.emplace_back(numbers.normal<T>(n)).data());
      const auto compare = [&]<class S>(DType wire, const std::vector<S>& before) {
        SCOPED_TRACE(::testing::Message() << to_string(wire) << " to " << to_string(dtype_of<S>));
        const Arrays<S> written = same_anywhere([&](std::int64_t shift) {
          std::vector<std::unique_ptr<Shifted<T>>> there;
          std::vector<const T*> on_device;
          for (const auto& slot : slots) on_device.push_back(*there.emplace_back(new Shifted<T>(slot, shift)));
          const Shifted<S> sum(before, shift), fresh(n, shift);
          table<T>().accumulate_all(n, count, on_device.data(), wire, dtype_of<S>, static_cast<S*>(sum), false);
          table<T>().accumulate_all(n, count, on_device.data(), wire, dtype_of<S>, static_cast<S*>(fresh), true);
          return Arrays<S>{sum.host(), fresh.host()};
        });
        std::vector<S> sum = before, fresh(n);
        table<T>(level()).accumulate_all(n, count, list.data(), wire, dtype_of<S>, sum.data(), false);
        table<T>(level()).accumulate_all(n, count, list.data(), wire, dtype_of<S>, fresh.data(), true);
        EXPECT_TRUE(same_bits(written[0], sum));
        EXPECT_TRUE(same_bits(written[1], fresh));
      };
      for (const DType wire : {DType::f32, DType::bf16, DType::f16}) {
        compare(wire, numbers.normal<float>(n));
        compare(wire, numbers.normal<bfloat16>(n));
      }
    }
  });
}

TEST_F(DeviceElementwise, CastsKeepNanAndInfinity) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const Shifted<float> x({std::nanf(""), kInfinity, -kInfinity, 3e38f, -1e-45f}, 0);
  const Shifted<bfloat16> brain(5, 0);
  const Shifted<float16> half(5, 0);
  table<bfloat16>().cast_from_float(5, x, brain);
  table<float16>().cast_from_float(5, x, half);
  const auto a = widened(brain.host()), b = widened(half.host());
  EXPECT_TRUE(std::isnan(a[0]) && std::isnan(b[0]));
  EXPECT_EQ((std::vector<double>{a.begin() + 1, a.begin() + 3}), (std::vector<double>{kInfinity, -kInfinity}));
  EXPECT_EQ((std::vector<double>{b.begin() + 1, b.end()}), (std::vector<double>{kInfinity, -kInfinity, kInfinity, 0}));
}

TEST_F(DeviceElementwise, TheSoftCapIsThatOfTheFormulaAndLeavesTheColumnsBehind) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  for_each_type([&]<class T>() {
    for (const auto& size :
         std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {100, 104}, {257, 264}, {5000, 5003}}) {
      const std::int64_t V = size.first, stride = size.second;
      constexpr std::int64_t N = 21;
      SCOPED_TRACE(V);
      const auto x = numbers.normal<T>(N * stride, 20);
      const auto capped = same_anywhere([&](std::int64_t shift) {
        const Shifted<T> on_x(x, shift);
        table<T>().soft_cap(N, V, stride, 30.0, on_x);
        return Arrays<T>{on_x.host()};
      })[0];
      std::vector<double> expected = widened(x);
      table<double>(level()).soft_cap(N, V, stride, 30.0, expected.data());
      EXPECT_LE(relative_error(capped, expected), kTolerance<T>);
      for (std::int64_t n = 0; n < N; ++n) {
        for (std::int64_t v = V; v < stride; ++v) {
          EXPECT_EQ(static_cast<float>(capped[n * stride + v]), static_cast<float>(x[n * stride + v]));
        }
      }
    }
  });
}

}  // namespace
}  // namespace trireme::kernels
