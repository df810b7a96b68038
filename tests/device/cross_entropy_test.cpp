// Cross-entropy on a device beside that of the CPU in double.
#include <limits>

#include "device/support.h"

namespace trireme::kernels {
namespace {

class DeviceCrossEntropy : public OnDevice {};

constexpr double kScale = 0.37, kBefore = 2.5;

template <class T>
struct Losses {
  double total = 0, evaluated = 0;
  std::vector<T> gradient;  // from the first row on
};

// The rows begin `offset` elements into their memory. What lies between V and stride is NaN.
template <class T>
struct Rows {
  std::int64_t N, V, stride;
  double soft_cap;
  std::vector<T> logits;
  std::vector<std::int32_t> labels;

  Rows(std::int64_t rows, std::int64_t width, std::int64_t row_stride, double cap, Numbers& numbers)
      : N(rows), V(width), stride(row_stride), soft_cap(cap), logits(numbers.normal<T>(rows * row_stride, 3.0)) {
    for (std::int64_t n = 0; n < N; ++n) {
      labels.push_back(n % 5 == 1 ? -1 : n % 5 == 2 ? static_cast<std::int32_t>(V - 1) : numbers.below(V));
      for (std::int64_t v = V; v < stride; ++v) logits[n * stride + v] = T(std::numeric_limits<float>::quiet_NaN());
    }
  }
  Losses<T> on_device(std::int64_t offset) const {
    std::vector<T> moved(offset, T(1.0f));
    moved.insert(moved.end(), logits.begin(), logits.end());
    const DeviceArray<T> memory(moved);
    const DeviceArray<std::int32_t> on_labels(labels);
    const DeviceArray<double> total(std::vector<double>{kBefore}), evaluated(std::vector<double>{kBefore});
    table<T>().cross_entropy_loss(N, V, stride, memory + offset, on_labels, evaluated);
    EXPECT_TRUE(same_bits(memory.host(), moved)) << "logits stay";
    table<T>().cross_entropy(N, V, stride, soft_cap, memory + offset, on_labels, kScale, total);
    EXPECT_NEAR(evaluated.host()[0], total.host()[0], 1e-6 * total.host()[0]);
    const std::vector<T> after = memory.host();
    for (std::int64_t i = 0; i < offset; ++i) EXPECT_EQ(static_cast<float>(after[i]), 1.0f);
    return {total.host()[0], evaluated.host()[0], {after.begin() + offset, after.end()}};
  }
  Losses<double> on_cpu() const {
    Losses<double> result{kBefore, kBefore, {logits.begin(), logits.end()}};
    table<double>(level()).cross_entropy(N, V, stride, soft_cap, result.gradient.data(), labels.data(), kScale,
                                         &result.total);
    return result;
  }
};

template <class T>
void compare(std::int64_t N, std::int64_t V, std::int64_t stride, double soft_cap, Numbers& numbers) {
  SCOPED_TRACE(::testing::Message() << N << " rows of " << V << " in " << stride << ", cap " << soft_cap);
  const Rows<T> rows(N, V, stride, soft_cap, numbers);
  const Losses<double> expected = rows.on_cpu();
  const Losses<T> found = rows.on_device(0);
  EXPECT_NEAR(found.total, expected.total, 1e-6 * expected.total);
  EXPECT_LE(relative_error(found.gradient, expected.gradient), kTolerance<T>);
  for (std::int64_t n = 0; n < N; ++n) {
    for (std::int64_t v = rows.labels[n] < 0 ? 0 : V; v < stride; ++v) {
      ASSERT_EQ(static_cast<float>(found.gradient[n * stride + v]), 0.0f) << n << ", " << v;
    }
  }
  for (const std::int64_t offset : {0, 1, 8}) {  // neither another run nor another alignment gives other bits
    const Losses<T> again = rows.on_device(offset);
    EXPECT_EQ(again.total, found.total) << offset;
    EXPECT_EQ(again.evaluated, found.evaluated) << offset;
    EXPECT_TRUE(same_bits(again.gradient, found.gradient)) << offset;
  }
}

template <class T>
void compare_cross_entropy(Numbers& numbers) {
  for (const double soft_cap : {0.0, 20.0}) {
    for (const std::int64_t V : {1, 7, 37, 1000, 4099, 9001}) {
      compare<T>(7, V, V, soft_cap, numbers);
      compare<T>(7, V, (V + 23) / 16 * 16, soft_cap, numbers);
    }
    compare<T>(4, 33'000, 33'008, soft_cap, numbers);
  }
  compare<T>(3, 128'256, 128'256, 0, numbers);  // longer than shared memory
  compare<T>(1'500, 65, 72, 0, numbers);
}

TEST_F(DeviceCrossEntropy, HasTheLossesAndGradientsOfTheFormula) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  compare_cross_entropy<float>(numbers);
  compare_cross_entropy<bfloat16>(numbers);
  compare_cross_entropy<float16>(numbers);
}

template <class T>
class Extremes {
 public:
  // far: logits so far apart that the smaller ones count nothing; large: of a size that the type has.
  Extremes(float far, float large) : far_(far), large_(large) {}
  void check() const {
    std::vector<float> row(kStride, -far_);
    row[20] = far_;
    EXPECT_EQ(loss(row, 20), 0.0);
    EXPECT_EQ(loss(row, 3), 2 * far_);
    EXPECT_NEAR(loss(std::vector<float>(kStride, large_), 5), std::log(21.0), 1e-4);
    row[7] = -kInfinity;  // a masked token
    EXPECT_EQ(loss(row, 20), 0.0);
    EXPECT_EQ(loss(row, 7), kInfinity);
    std::vector<float> masked(kStride, -kInfinity);
    EXPECT_TRUE(std::isnan(loss(masked, 3)));
    masked[5] = 1.0f;
    EXPECT_EQ(loss(masked, 5), 0.0);
    for (const std::int64_t place : {0, 3, 20}) {
      auto broken = row;
      broken[place] = std::numeric_limits<float>::quiet_NaN();
      EXPECT_TRUE(std::isnan(loss(broken, 3))) << place;
    }
  }

 private:
  static constexpr float kInfinity = std::numeric_limits<float>::infinity();
  static constexpr std::int64_t V = 21, kStride = 24;
  static double loss(const std::vector<float>& values, std::int32_t label) {
    const DeviceArray<T> logits(std::vector<T>(values.begin(), values.end()));
    const DeviceArray<std::int32_t> labels(std::vector<std::int32_t>{label});
    const DeviceArray<double> total(std::vector<double>{0.0});
    table<T>().cross_entropy(1, V, kStride, 0, logits, labels, 1.0, total);
    return total.host()[0];
  }
  float far_, large_;
};

TEST_F(DeviceCrossEntropy, HoldsForExtremeLogits) {
  Extremes<float>(1e4f, 1e38f).check();
  Extremes<bfloat16>(4096, 1024).check();
  Extremes<float16>(4096, 1024).check();
}

}  // namespace
}  // namespace trireme::kernels
