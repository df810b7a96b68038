#include "device/shifted.h"

namespace trireme::kernels {
namespace {

class DeviceRmsNorm : public OnDevice {};

// Heads, strides, rows of every kind that the kernel holds, longer ones, and more of them than blocks.
const std::vector<NormShape> kShapes = {{.N = 3, .C = 5},
                                        {.N = 130, .C = 7},
                                        {.N = 67, .C = 64, .heads = 5, .row_stride = 512},
                                        {.N = 45, .C = 128, .heads = 3, .row_stride = 384, .one_plus = true},
                                        {.N = 12, .C = 33, .heads = 4, .row_stride = 140},
                                        {.N = 100, .C = 576},
                                        {.N = 300, .C = 2048, .one_plus = true},
                                        {.N = 7, .C = 4099},
                                        {.N = 65, .C = 8192},
                                        {.N = 3, .C = 16000, .heads = 2, .row_stride = 32001},
                                        {.N = 5, .C = 40000},
                                        {.N = 1500, .C = 300},
                                        {.N = 1100, .C = 2048},
                                        {.N = 600, .C = 3072},
                                        {.N = 700, .C = 1000},
                                        {.N = 12000, .C = 40, .heads = 3, .row_stride = 128},
                                        {.N = 2300, .C = 128, .heads = 3, .row_stride = 400}};

// A row's runs alone: what lies behind them is not a kernel's business.
template <class T>
std::vector<T> runs_of(const NormShape& s, const std::vector<T>& x) {
  std::vector<T> runs;
  for (std::int64_t n = 0; n < s.N; ++n) {
    const auto row = x.begin() + n * s.row_stride;
    runs.insert(runs.end(), row, row + s.heads * s.C);
  }
  return runs;
}

TEST_F(DeviceRmsNorm, OutputsAndScalesAreThoseOfTheFormula) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  for_each_type([&]<class T>() {
    for (const NormShape& s : kShapes) {
      SCOPED_TRACE(::testing::Message() << s.N << " rows of " << s.heads << " x " << s.C);
      const std::int64_t size = s.N * s.row_stride, runs = s.N * s.heads;
      const auto x = numbers.normal<T>(size, 0.5), w = numbers.normal<T>(s.C);
      std::vector<float> rstd;
      const auto y = same_anywhere([&](std::int64_t shift) {
        const Shifted<T> on_x(x, shift), on_w(w, shift), on_y(x, shift);
        const DeviceArray<float> on_rstd(runs);
        table<T>().rmsnorm_forward(s, on_x, on_w, 1e-5, on_y, on_rstd);
        const auto scales = on_rstd.host();
        EXPECT_TRUE(rstd.empty() || same_bits(rstd, scales));
        rstd = scales;
        return std::vector<std::vector<T>>{on_y.host()};
      })[0];
      std::vector<double> expected = widened(x), expected_rstd(runs);
      table<double>(level()).rmsnorm_forward(s, widened(x).data(), widened(w).data(), 1e-5, expected.data(),
                                             expected_rstd.data());
      EXPECT_LE(relative_error(y, expected), kTolerance<T>);
      EXPECT_LE(relative_error(rstd, expected_rstd), kTolerance<float>);
    }
  });
}

TEST_F(DeviceRmsNorm, GradientsAreThoseOfTheFormula) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  for_each_type([&]<class T>() {
    for (const NormShape& s : kShapes) {
      for (const bool add : {false, true}) {
        SCOPED_TRACE(::testing::Message() << s.N << " rows of " << s.heads << " x " << s.C << (add ? " add" : ""));
        const std::int64_t size = s.N * s.row_stride, runs = s.N * s.heads;
        const auto x = numbers.normal<T>(size), w = numbers.normal<T>(s.C), dy = numbers.normal<T>(size);
        const auto dx = numbers.normal<T>(size), dw = numbers.normal<T>(s.C);
        std::vector<double> y(size), rstd(runs);
        const Table<double>& reference = table<double>(level());
        reference.rmsnorm_forward(s, widened(x).data(), widened(w).data(), 1e-5, y.data(), rstd.data());
        const DeviceArray<float> on_rstd(std::vector<float>(rstd.begin(), rstd.end()));
        const auto written = same_anywhere([&](std::int64_t shift) {
          const Shifted<T> on_x(x, shift), on_w(w, shift), on_dy(dy, shift), on_dx(dx, shift);
          const Shifted<T> on_dw = add ? Shifted<T>(dw, shift) : Shifted<T>(s.C, shift);
          table<T>().rmsnorm_backward(s, on_x, on_w, on_rstd, on_dy, add ? on_dx.data() : nullptr, on_dx, on_dw, add,
                                      on_dy);
          const Shifted<T> on_y(size, shift);
          const DeviceArray<float> again(runs);
          table<T>().rmsnorm_forward(s, on_x, on_w, 1e-5, on_y, again);
          EXPECT_LE(relative_error(runs_of(s, on_dy.host()), runs_of(s, widened(on_y.host()))), kTolerance<T>);
          return std::vector<std::vector<T>>{runs_of(s, on_dx.host()), on_dw.host()};
        });
        std::vector<double> expected_dx = widened(dx), expected_dw = widened(dw);
        reference.rmsnorm_backward(s, widened(x).data(), widened(w).data(), rstd.data(), widened(dy).data(),
                                   add ? expected_dx.data() : nullptr, expected_dx.data(), expected_dw.data(), add,
                                   nullptr);
        EXPECT_LE(relative_error(written[0], runs_of(s, expected_dx)), kTolerance<T>);
        EXPECT_LE(relative_error(written[1], expected_dw), kTolerance<T>);
      }
    }
  });
}

TEST_F(DeviceRmsNorm, MoreRowsThanAGridIsHighAreAllWritten) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  constexpr std::int64_t C = 1032, N = 65535 + 10;
  const auto row = numbers.normal<bfloat16>(C);
  std::vector<bfloat16> x;
  for (std::int64_t n = 0; n < N; ++n) x.insert(x.end(), row.begin(), row.end());
  const DeviceArray<bfloat16> on_x(x), w(row), y(N * C);
  const DeviceArray<float> rstd(N);
  table<bfloat16>().rmsnorm_forward({.N = N, .C = C}, on_x, w, 1e-5, y, rstd);
  const std::vector<float> scales = rstd.host();
  EXPECT_EQ(scales, std::vector<float>(N, scales[0]));
  const std::vector<bfloat16> all = y.host();
  EXPECT_FALSE(std::isnan(static_cast<float>(all[0])));
  EXPECT_EQ(std::memcmp(all.data(), all.data() + C, (N - 1) * C * sizeof(bfloat16)), 0);
}

TEST_F(DeviceRmsNorm, WithoutAWeightGradientTheInputsIsTheSame) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  const NormShape s{.N = 40, .C = 96};
  const auto x = numbers.normal<bfloat16>(s.N * s.C), dy = numbers.normal<bfloat16>(s.N * s.C);
  const DeviceArray<bfloat16> on_x(x), w(numbers.normal<bfloat16>(s.C)), on_dy(dy), dw(s.C);
  const DeviceArray<bfloat16> with(s.N * s.C), without(s.N * s.C);
  const DeviceArray<float> rstd(std::vector<float>(s.N, 0.9f));
  table<bfloat16>().rmsnorm_backward(s, on_x, w, rstd, on_dy, nullptr, with, dw, false, nullptr);
  table<bfloat16>().rmsnorm_backward(s, on_x, w, rstd, on_dy, nullptr, without, nullptr, false, nullptr);
  EXPECT_TRUE(same_bits(with.host(), without.host()));
  EXPECT_FALSE(std::isnan(static_cast<float>(without.host()[0])));
}

}  // namespace
}  // namespace trireme::kernels
