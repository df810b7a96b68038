#include "device/shifted.h"

namespace trireme::kernels {
namespace {

class DeviceActivation : public OnDevice {};

constexpr Activation kActivations[] = {Activation::silu, Activation::gelu_tanh, Activation::gelu, Activation::relu};

template <class T>
using Arrays = std::vector<std::vector<T>>;

// The first is far from where activations vanish, so that the norm of a few results is none of differences.
template <class T>
std::vector<T> inputs(Numbers& numbers, std::int64_t n) {
  std::vector<T> x = numbers.normal<T>(n, 3);
  x[0] = T(1.5f);
  return x;
}

TEST_F(DeviceActivation, GatesAreThoseOfTheFormula) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  for_each_type([&]<class T>() {
    for (const Activation activation : kActivations) {
      for (const auto& size :
           std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {5, 7}, {37, 64}, {9, 4104}, {300, 40}}) {
        const std::int64_t N = size.first, F = size.second;
        SCOPED_TRACE(::testing::Message() << static_cast<int>(activation) << ": " << N << " x " << F);
        const auto gate_up = inputs<T>(numbers, N * 2 * F), dy = numbers.normal<T>(N * F);
        const auto [y, dgate_up] = [&] {
          const Arrays<T> written = same_anywhere([&](std::int64_t shift) {
            const Shifted<T> on_gate_up(gate_up, shift), on_dy(dy, shift), on_y(N * F, shift), on_dx(N * 2 * F, shift);
            table<T>().glu_forward(activation, N, F, on_gate_up, on_y);
            table<T>().glu_backward(activation, N, F, on_gate_up, on_dy, on_dx, nullptr);
            const auto dx = on_dx.host();
            table<T>().glu_backward(activation, N, F, on_gate_up, on_dy, on_dx, on_dy);
            EXPECT_TRUE(same_bits(on_dx.host(), dx) && same_bits(on_dy.host(), on_y.host())) << "with the output";
            return Arrays<T>{on_y.host(), dx};
          });
          return std::pair(written[0], written[1]);
        }();
        std::vector<double> expected_y(N * F), expected_dx(N * 2 * F);
        const Table<double>& reference = table<double>(level());
        reference.glu_forward(activation, N, F, widened(gate_up).data(), expected_y.data());
        reference.glu_backward(activation, N, F, widened(gate_up).data(), widened(dy).data(), expected_dx.data(),
                               nullptr);
        EXPECT_LE(relative_error(y, expected_y), kTolerance<T>);
        EXPECT_LE(relative_error(dgate_up, expected_dx), kTolerance<T>);
      }
    }
  });
}

TEST_F(DeviceActivation, AloneTheyAreThoseOfTheFormula) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  for_each_type([&]<class T>() {
    for (const Activation activation : kActivations) {
      for (const std::int64_t n : {1, 77, 4096, 10007}) {
        SCOPED_TRACE(::testing::Message() << static_cast<int>(activation) << ": " << n);
        const auto x = inputs<T>(numbers, n), dy = numbers.normal<T>(n);
        const Arrays<T> written = same_anywhere([&](std::int64_t shift) {
          const Shifted<T> on_x(x, shift), on_y(n, shift), dx_for_dy(dy, shift);
          table<T>().activation_forward(activation, n, on_x, on_y);
          const Shifted<T> y_for_dy(dy, shift), on_dx(n, shift);
          table<T>().activation_backward(activation, n, on_x, dx_for_dy, dx_for_dy, nullptr);
          table<T>().activation_backward(activation, n, on_x, y_for_dy, on_dx, y_for_dy);
          EXPECT_TRUE(same_bits(on_dx.host(), dx_for_dy.host()) && same_bits(y_for_dy.host(), on_y.host()));
          return Arrays<T>{on_y.host(), dx_for_dy.host()};
        });
        std::vector<double> expected_y(n), expected_dx(n);
        table<double>(level()).activation_forward(activation, n, widened(x).data(), expected_y.data());
        table<double>(level()).activation_backward(activation, n, widened(x).data(), widened(dy).data(),
                                                   expected_dx.data(), nullptr);
        EXPECT_LE(relative_error(written[0], expected_y), kTolerance<T>);
        EXPECT_LE(relative_error(written[1], expected_dx), kTolerance<T>);
      }
    }
  });
}

TEST_F(DeviceActivation, TheyHoldAtTheEndsOfTheRange) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> x{-kInfinity, -1e4f, -88.9f, -20.0f, 0.0f, 20.0f, 88.9f, 1e4f, kInfinity, std::nanf("")};
  const std::vector<float> ones(x.size(), 1.0f);
  const std::int64_t n = std::ssize(x);
  for (const Activation activation : kActivations) {
    SCOPED_TRACE(static_cast<int>(activation));
    const Shifted<float> on_x(x, 0), dy(ones, 0), on_y(n, 0), on_dx(n, 0);
    table<float>().activation_forward(activation, n, on_x, on_y);
    table<float>().activation_backward(activation, n, on_x, dy, on_dx, nullptr);
    std::vector<float> y(n), dx(n);
    table<float>(level()).activation_forward(activation, n, x.data(), y.data());
    table<float>(level()).activation_backward(activation, n, x.data(), ones.data(), dx.data(), nullptr);
    const auto device_y = on_y.host(), device_dx = on_dx.host();
    for (std::int64_t i = 0; i < n; ++i) {
      SCOPED_TRACE(x[i]);
      const auto expect_near = [](float value, float expected) {
        if (std::isfinite(expected)) {
          EXPECT_NEAR(value, expected, 1e-6f * std::max(1.0f, std::abs(expected)));
        } else {
          EXPECT_TRUE(value == expected || (std::isnan(value) && std::isnan(expected))) << value << ", " << expected;
        }
      };
      expect_near(device_y[i], y[i]);
      expect_near(device_dx[i], dx[i]);
    }
  }
}

}  // namespace
}  // namespace trireme::kernels
