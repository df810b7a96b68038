#include "device/shifted.h"

namespace trireme::kernels {
namespace {

class DeviceLayerNorm : public OnDevice {};

// Rows of every kind that the kernels hold, longer ones, and more of them than blocks.
const std::vector<std::pair<std::int64_t, std::int64_t>> kSizesOfRows = {
    {3, 5},     {130, 7},   {67, 64},   {45, 100},   {257, 768},   {300, 1600}, {7, 4099},
    {33, 8192}, {3, 16001}, {5, 40000}, {1700, 768}, {1100, 1600}, {600, 3072}};

TEST_F(DeviceLayerNorm, OutputsAndMomentsAreThoseOfTheFormula) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  for_each_type([&]<class T>() {
    for (const auto& size : kSizesOfRows) {
      const std::int64_t N = size.first, C = size.second;
      SCOPED_TRACE(::testing::Message() << N << " x " << C);
      auto x = numbers.normal<T>(N * C);
      for (T& value : x) value = T(static_cast<float>(value) + 3);  // a mean to take off
      const auto w = numbers.normal<T>(C), b = numbers.normal<T>(C);
      std::vector<float> mean, rstd;
      const auto y = same_anywhere([&](std::int64_t shift) {
        const Shifted<T> on_x(x, shift), on_w(w, shift), on_b(b, shift), on_y(N * C, shift);
        const DeviceArray<float> on_mean(N), on_rstd(N);
        table<T>().layernorm_forward(N, C, on_x, on_w, on_b, 1e-5, on_y, on_mean, on_rstd);
        mean = on_mean.host();
        rstd = on_rstd.host();
        return std::vector<std::vector<T>>{on_y.host()};
      })[0];
      std::vector<double> expected(N * C), expected_mean(N), expected_rstd(N);
      table<double>(level()).layernorm_forward(N, C, widened(x).data(), widened(w).data(), widened(b).data(), 1e-5,
                                               expected.data(), expected_mean.data(), expected_rstd.data());
      EXPECT_LE(relative_error(y, expected), kTolerance<T>);
      EXPECT_LE(relative_error(mean, expected_mean), kTolerance<float>);
      EXPECT_LE(relative_error(rstd, expected_rstd), kTolerance<float>);
    }
  });
}

TEST_F(DeviceLayerNorm, GradientsAreThoseOfTheFormula) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  for_each_type([&]<class T>() {
    for (const auto& size : kSizesOfRows) {
      const std::int64_t N = size.first, C = size.second;
      for (const bool add : {false, true}) {
        SCOPED_TRACE(::testing::Message() << N << " x " << C << (add ? " add" : ""));
        const auto x = numbers.normal<T>(N * C), w = numbers.normal<T>(C), b = numbers.normal<T>(C);
        const auto dy = numbers.normal<T>(N * C), dx = numbers.normal<T>(N * C), dw = numbers.normal<T>(C);
        std::vector<double> y(N * C), mean(N), rstd(N);
        const Table<double>& reference = table<double>(level());
        reference.layernorm_forward(N, C, widened(x).data(), widened(w).data(), widened(b).data(), 1e-5, y.data(),
                                    mean.data(), rstd.data());
        const DeviceArray<float> on_mean(std::vector<float>(mean.begin(), mean.end()));
        const DeviceArray<float> on_rstd(std::vector<float>(rstd.begin(), rstd.end()));
        const auto written = same_anywhere([&](std::int64_t shift) {
          const Shifted<T> on_x(x, shift), on_w(w, shift), on_b(b, shift), on_dy(dy, shift);
          const auto target = [&](const std::vector<T>& before) {
            return add ? Shifted<T>(before, shift) : Shifted<T>(std::ssize(before), shift);
          };
          const Shifted<T> on_dx = target(dx), on_dw = target(dw), on_db = target(b), alone(N * C, shift);
          const Shifted<T> addend(dx, shift);
          table<T>().layernorm_backward(N, C, on_x, on_w, nullptr, on_mean, on_rstd, on_dy,
                                        add ? on_dx.data() : nullptr, on_dx, on_dw, add, on_db, add, nullptr);
          table<T>().layernorm_backward(N, C, on_x, on_w, on_b, on_mean, on_rstd, on_dy, add ? addend.data() : nullptr,
                                        alone, nullptr, false, nullptr, false, on_dy);
          EXPECT_LE(relative_error(on_dy.host(), y), kTolerance<T>);
          return std::vector<std::vector<T>>{on_dx.host(), on_dw.host(), on_db.host(), alone.host()};
        });
        std::vector<double> expected_dx = widened(dx), expected_dw = widened(dw), expected_db = widened(b);
        reference.layernorm_backward(N, C, widened(x).data(), widened(w).data(), nullptr, mean.data(), rstd.data(),
                                     widened(dy).data(), add ? expected_dx.data() : nullptr, expected_dx.data(),
                                     expected_dw.data(), add, expected_db.data(), add, nullptr);
        EXPECT_LE(relative_error(written[0], expected_dx), kTolerance<T>);
        EXPECT_LE(relative_error(written[1], expected_dw), kTolerance<T>);
        EXPECT_LE(relative_error(written[2], expected_db), kTolerance<T>);
        EXPECT_TRUE(same_bits(written[3], written[0]));
      }
    }
  });
}

}  // namespace
}  // namespace trireme::kernels
