// The fixture of the parity tests: seeded random shapes, the CPU level in use, and the bound of each dtype.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/kernels.h"
#include "parity/support.h"
#include "support/seed.h"

namespace trireme::parity {

// Where a gradient goes: garbage to be overwritten, or something of its size to be added to.
class Gradient {
 public:
  Gradient(const Value& expected, DType dtype, bool add, Random& random)
      : before_(random.normal(expected.sizes, dtype, root_mean_square(expected))), buffer_(before_, dtype), add_(add) {}
  Tensor tensor() const { return buffer_.tensor(); }
  GradientPlace place() const { return {buffer_.tensor(), add_}; }
  Value read() const { return buffer_.read(); }
  // What must be there at the end.
  Value after(Value gradient) const {
    for (std::size_t i = 0; add_ && i < gradient.data.size(); ++i) gradient.data[i] += before_.data[i];
    return gradient;
  }

 private:
  Value before_;
  Buffer buffer_;
  bool add_;
};

class Parity : public ::testing::TestWithParam<DType> {
 protected:
  DType dtype() const { return GetParam(); }
  // Of ||a - b|| / ||b|| for one layer or unit. bf16: its unit roundoff is 2^-9 = 0.002, and a unit rounds a dozen
  // partial results. Sixty seeds showed at most 1e-15, 1e-6 and 0.036 where no sum cancels (cost_of_rounding). fp16 has
  // three bits more, an eighth of the error.
  double bound() const {
    switch (dtype()) {
      case DType::f64: return 1e-9;
      case DType::f32: return 1e-5;
      case DType::f16: return 0.06 / 8;
      default: return 0.06;
    }
  }

  void SetUp() override {
    try {
      kernels::level();
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
    threads_ = kernels::num_threads();
  }
  void TearDown() override { kernels::set_num_threads(threads_); }

  // check(case, add): eight random cases, some on two compute threads; add: gradients add to what is there.
  template <class Check>
  void for_each_case(Check check) {
    for (int i = 0; i < 8; ++i) {
      Case c = random_case(random_);
      // At the kink of relu one rounding gives another gradient: whole units are compared with it in double only.
      if (dtype() != DType::f64 && c.config.activation == Activation::relu) c.config.activation = Activation::silu;
      const bool add = i % 3 == 1;
      kernels::set_num_threads(i % 4 == 3 ? 2 : 1);
      SCOPED_TRACE(to_string(c) + (add ? " add" : "") + " seed " + std::to_string(seed_));
      check(c, add);
      if (HasFailure()) return;
    }
  }

  Value normal(std::vector<std::int64_t> sizes, double deviation = 1.0) {
    return random_.normal(std::move(sizes), dtype(), deviation);
  }

  // units: how many follow one another, each with its own error.
  void expect_near(const Value& value, const Value& expected, const std::string& what, int units = 1) {
    EXPECT_LE(relative_difference(value, expected), bound() * units) << what;
  }
  void expect_near(const Gradient& gradient, const Value& expected, const std::string& what, int units = 1) {
    expect_near(gradient.read(), gradient.after(expected), what, units);
  }

  // Where sums cancel, what rounding costs is no matter of the code: of each gradient the change, in the reference,
  // where all parameters are rounded once more, up or down by chance (the larger of two). 0 in more than 16 bits.
  template <class Reference>
  std::vector<double> cost_of_rounding(const std::vector<Value>& parameters, const Derivative& expected,
                                       const Reference& reference) const {
    std::vector<double> costs(expected.gradients.size());
    if (size_of(dtype()) > 2) return costs;
    const double unit = dtype() == DType::bf16 ? 0x1p-8 : 0x1p-11;
    Random random(seed_ + 1);  // of its own: the cases stay what they are
    for (int i = 0; i < 2; ++i) {
      std::vector<Value> rounded = parameters;
      for (Value& value : rounded) {
        for (double& element : value.data) element *= 1 + (random.below(2) == 0 ? unit : -unit);
      }
      const Derivative other = reference(rounded);
      for (std::size_t k = 0; k < costs.size(); ++k) {
        costs[k] = std::max(costs[k], relative_difference(other.gradients[k], expected.gradients[k]));
      }
    }
    return costs;
  }
  // Up to that cost, twice, is right as well: what is computed is rounded too. A quarter of it was seen in such cases.
  void expect_near(const Value& value, const Value& expected, const std::string& what, int units, double cost) {
    EXPECT_LE(relative_difference(value, expected), std::max(bound() * units, 2 * cost)) << what;
  }
  void expect_near(const Gradient& gradient, const Value& expected, const std::string& what, int units, double cost) {
    expect_near(gradient.read(), gradient.after(expected), what, units, cost);
  }

  const std::uint64_t seed_ = testing::test_seed();
  Random random_{seed_};

 private:
  int threads_ = 1;
};

inline const auto kDtypes = ::testing::Values(DType::f64, DType::f32, DType::bf16, DType::f16);
inline std::string dtype_name(const ::testing::TestParamInfo<DType>& info) {
  return std::string(to_string(info.param));
}

}  // namespace trireme::parity
