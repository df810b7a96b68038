// The optimizers and the norm on a device beside those of the CPU, whose bits they have.
#include <limits>

#include "device/support.h"

namespace trireme::kernels {
namespace {

class DeviceFlat : public OnDevice {};

constexpr OptimizerKernel FlatTable::*kOptimizers[] = {&FlatTable::adamw, &FlatTable::adam, &FlatTable::sgd,
                                                       &FlatTable::adagrad, &FlatTable::lion};
// A CPU without fused multiply-adds has other bits.
const FlatTable& reference() {
  return flat_table(levels_here().back());
}
bool same_numbers(const std::vector<float>& a, const std::vector<float>& b) {
  return levels_here().back() == Level::baseline ? relative_error(a, b) < 1e-6 : same_bits(a, b);
}

template <class T>
std::vector<T> from(const std::vector<T>& values, std::int64_t offset) {
  return {values.begin() + offset, values.end()};
}

// Three steps of n elements that begin `offset` elements into their arrays.
template <class G, class W>
void compare(OptimizerKernel FlatTable::*optimizer, bool with_momentum, std::int64_t n, std::int64_t offset,
             bool with_weights, Numbers& numbers) {
  SCOPED_TRACE(::testing::Message() << n << " elements from " << offset << (with_weights ? ", weights" : ""));
  auto master = numbers.normal<float>(n + offset), m = numbers.normal<float>(n + offset);
  std::vector<float> v(n + offset, 0.25f);
  if (optimizer == &FlatTable::adagrad) {  // a sum of squares
    for (float& value : m) value *= value;
  }
  std::vector<W> weights(n + offset, from_double<W>(7.0));
  const DeviceArray<float> on_master(master), on_m(m), on_v(v);
  const DeviceArray<W> on_weights(weights);
  OptimizerArguments a{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .momentum = 0.8};
  a.learning_rate = 1e-2;
  for (int step = 1; step <= 3; ++step) {
    a.bias_correction1 = 1 - std::pow(a.beta1, step);
    a.bias_correction2 = 1 - std::pow(a.beta2, step);
    a.nesterov = step == 2;
    const Update update{.gradient_scale = 0.37 * step};
    const DeviceArray<Update> on_update(std::vector<Update>{update});
    const auto gradient = numbers.normal<G>(n + offset);
    const DeviceArray<G> on_gradient(gradient);
    const auto run = [&](float* masters, float* ms, float* vs, const G* gradients, W* copies) {
      return OptimizerRun{n,
                          masters + offset,
                          with_momentum ? ms + offset : nullptr,
                          vs + offset,
                          gradients + offset,
                          dtype_of<G>,
                          with_weights ? copies + offset : nullptr,
                          dtype_of<W>};
    };
    (reference().*optimizer)(a, &update, run(master.data(), m.data(), v.data(), gradient.data(), weights.data()));
    (flat_table().*optimizer)(a, on_update, run(on_master, on_m, on_v, on_gradient, on_weights));
    EXPECT_TRUE(same_numbers(on_master.host(), master)) << step;
    EXPECT_TRUE(same_numbers(on_m.host(), m)) << step;
    EXPECT_TRUE(same_numbers(on_v.host(), v)) << step;
    const auto copied = on_weights.host();
    for (std::int64_t i = 0; i < n + offset; ++i) {
      const W expected = with_weights && i >= offset ? W(on_master.host()[i]) : from_double<W>(7.0);
      ASSERT_EQ(static_cast<float>(copied[i]), static_cast<float>(expected)) << i;
    }
  }
}

TEST_F(DeviceFlat, OptimizersMoveWhatThoseOfTheCpuMove) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  for (int i = 0; i < 5; ++i) {
    SCOPED_TRACE(i);
    for (const std::int64_t n : {1, 1000, 1024, 2051}) {
      for (const std::int64_t offset : {0, 3, 8}) {
        compare<float, bfloat16>(kOptimizers[i], true, n, offset, n != 1024, numbers);
        compare<bfloat16, float16>(kOptimizers[i], true, n, offset, true, numbers);
      }
    }
    compare<bfloat16, bfloat16>(kOptimizers[i], true, 1500, 0, true, numbers);
    compare<float, float16>(kOptimizers[i], true, 1500, 0, true, numbers);
  }
  compare<float, bfloat16>(&FlatTable::sgd, false, 2051, 0, true, numbers);
  compare<bfloat16, bfloat16>(&FlatTable::sgd, false, 2051, 1, false, numbers);
}

std::vector<bfloat16> narrow_of(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

// Master and moments in bf16, or moments alone (M: float).
template <class G, class M>
void compare_narrow(OptimizerKernel FlatTable::*optimizer, std::int64_t n, std::int64_t offset, bool with_weights,
                    Numbers& numbers) {
  SCOPED_TRACE(::testing::Message() << n << " elements from " << offset << (with_weights ? ", weights" : ""));
  const auto positive = [&] {
    auto values = numbers.normal<float>(n + offset);
    for (float& value : values) value = std::abs(value);
    return narrow_of(values);
  };
  auto master = numbers.normal<M>(n + offset);
  std::vector<bfloat16> m = positive(), v = positive(), weights(n + offset, bfloat16(7.0f));
  const DeviceArray<M> on_master(master);
  const DeviceArray<bfloat16> on_m(m), on_v(v), on_weights(weights);
  OptimizerArguments a{.learning_rate = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
  for (std::uint64_t step = 1; step <= 3; ++step) {
    a.bias_correction1 = 1 - std::pow(a.beta1, step);
    a.bias_correction2 = 1 - std::pow(a.beta2, step);
    const Update update{.gradient_scale = 0.37};
    const DeviceArray<Update> on_update(std::vector<Update>{update});
    const auto gradient = numbers.normal<G>(n + offset);
    const DeviceArray<G> on_gradient(gradient);
    const auto run = [&](M* masters, bfloat16* ms, bfloat16* vs, const G* gradients, bfloat16* copies) {
      return OptimizerRun{.n = n,
                          .master = masters + offset,
                          .m = ms + offset,
                          .v = vs + offset,
                          .gradient = gradients + offset,
                          .gradient_dtype = dtype_of<G>,
                          .weights = with_weights ? copies + offset : nullptr,
                          .master_dtype = dtype_of<M>,
                          .moment_dtype = DType::bf16,
                          .rounding = {.seed = 11, .stream = 5, .step = step, .first = 512}};
    };
    (reference().*optimizer)(a, &update, run(master.data(), m.data(), v.data(), gradient.data(), weights.data()));
    (flat_table().*optimizer)(a, on_update, run(on_master, on_m, on_v, on_gradient, on_weights));
    const auto same = [](const auto& x, const auto& y) {
      if (levels_here().back() != Level::baseline) return same_bits(x, y);
      return relative_error(x, y) < 1e-2;  // where an element is rounded up the other may go down
    };
    EXPECT_TRUE(same(on_master.host(), master)) << step;
    EXPECT_TRUE(same(on_m.host(), m)) << step;
    EXPECT_TRUE(same(on_v.host(), v)) << step;
    EXPECT_TRUE(same(on_weights.host(), weights)) << step;
  }
}

TEST_F(DeviceFlat, StateInBf16IsRoundedAsThatOfTheCpu) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  for (int i = 0; i < 5; ++i) {
    SCOPED_TRACE(i);
    for (const std::int64_t n : {1, 1000, 2048, 2051}) {
      for (const std::int64_t offset : {0, 3, 8}) {
        compare_narrow<float, bfloat16>(kOptimizers[i], n, offset, n != 2048, numbers);
        compare_narrow<bfloat16, float>(kOptimizers[i], n, offset, n == 2048, numbers);
      }
    }
  }
}

TEST_F(DeviceFlat, WeightsApartFromTheMasterAreItsCopy) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  const DeviceArray<float> master(numbers.normal<float>(1030)), gradient(numbers.normal<float>(1030));
  const DeviceArray<float> weights(std::int64_t{1030});
  const DeviceArray<Update> update(std::vector<Update>(1));
  flat_table().sgd({.learning_rate = 0.1}, update,
                   {1030, master, nullptr, nullptr, gradient, DType::f32, weights, DType::f32});
  EXPECT_TRUE(same_bits(weights.host(), master.host()));
}

TEST_F(DeviceFlat, AnUpdateThatSkipsMovesNothing) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  const auto before = numbers.normal<float>(1500);
  const std::vector<bfloat16> weights_before(1500, bfloat16(3.0f));
  for (int i = 0; i < 5; ++i) {
    const DeviceArray<float> master(before), m(before), v(before), gradient(numbers.normal<float>(1500));
    const DeviceArray<bfloat16> weights(weights_before);
    const DeviceArray<Update> update(std::vector<Update>{{.gradient_scale = 1, .skips = true}});
    (flat_table().*kOptimizers[i])({.learning_rate = 1, .bias_correction1 = 1, .bias_correction2 = 1}, update,
                                   {1500, master, m, v, gradient, DType::f32, weights, DType::bf16});
    EXPECT_TRUE(same_bits(master.host(), before)) << i;
    EXPECT_TRUE(same_bits(m.host(), before)) << i;
    EXPECT_TRUE(same_bits(v.host(), before)) << i;
    EXPECT_TRUE(same_bits(weights.host(), weights_before)) << i;
  }
}

template <class T>
ExactSum squares_on_device(const T* x, std::int64_t n, ExactSum before) {
  const DeviceArray<ExactSum> sum(std::vector<ExactSum>{before});
  flat_table().sum_of_squares(n, x, dtype_of<T>, sum);
  return sum.host()[0];
}

template <class T>
void compare_squares(Numbers& numbers) {
  for (const std::int64_t n : {0, 1, 15, 16, 17, 255, 256, 257, 4096, 70'001, 3'000'017}) {
    for (const std::int64_t offset : {0, 1}) {
      SCOPED_TRACE(::testing::Message() << n << " from " << offset);
      const auto x = numbers.normal<T>(n + offset);
      const DeviceArray<T> on_x(x);
      ExactSum expected{3.0, 0.0};
      reference().sum_of_squares(n, x.data() + offset, dtype_of<T>, &expected);
      const ExactSum sum = squares_on_device(on_x + offset, n, {3.0, 0.0});
      EXPECT_EQ(static_cast<float>(sum.value()), static_cast<float>(expected.value()));
      EXPECT_NEAR(sum.value(), expected.value(), 1e-14 * expected.value());
      const ExactSum again = squares_on_device(on_x + offset, n, {3.0, 0.0});
      EXPECT_EQ(again.high, sum.high);
      EXPECT_EQ(again.low, sum.low);
    }
  }
}

TEST_F(DeviceFlat, SumsOfSquaresAreThoseOfTheCpu) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  compare_squares<float>(numbers);
  compare_squares<bfloat16>(numbers);
}

// The norm of a whole run and of its slices, cut where chunks end, is one.
TEST_F(DeviceFlat, SumsOfSquaresDoNotDependOnTheCuts) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  constexpr std::int64_t n = 1'200'000;
  const DeviceArray<float> x(numbers.normal<float>(n));
  const double whole = squares_on_device(x.data(), n, {}).value();
  for (const std::int64_t parts : {2, 3, 7}) {
    ExactSum sum;
    for (std::int64_t i = 0; i < parts; ++i) {
      const std::int64_t begin = n * i / parts / 256 * 256, end = i + 1 == parts ? n : n * (i + 1) / parts / 256 * 256;
      sum.add(squares_on_device(x + begin, end - begin, {}));
    }
    EXPECT_EQ(static_cast<float>(sum.value()), static_cast<float>(whole)) << parts;
    EXPECT_NEAR(sum.value(), whole, 1e-15 * whole) << parts;
  }
}

template <class T>
void let_what_is_not_finite_through() {
  for (const std::int64_t place : {0, 299, 9'999}) {
    std::vector<T> x(10'000, T(1.0f));
    x[place] = T(std::numeric_limits<float>::quiet_NaN());
    EXPECT_TRUE(std::isnan(squares_on_device(DeviceArray<T>(x).data(), 10'000, {}).value()));
    x[place] = T(-std::numeric_limits<float>::infinity());
    EXPECT_EQ(squares_on_device(DeviceArray<T>(x).data(), 10'000, {}).value(), std::numeric_limits<double>::infinity());
  }
}

TEST_F(DeviceFlat, SumsOfSquaresLetNanAndInfinityThrough) {
  let_what_is_not_finite_through<float>();
  let_what_is_not_finite_through<bfloat16>();
}

}  // namespace
}  // namespace trireme::kernels
