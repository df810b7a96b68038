#include "device/shifted.h"

namespace trireme::kernels {
namespace {

class DeviceBias : public OnDevice {};

TEST_F(DeviceBias, RowsHaveTheBitsOfTheCpuAndGradientsAreTheirSums) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  for_each_type([&]<class T>() {
    for (const auto& size : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {1, 1}, {9, 7}, {1000, 64}, {257, 768}, {33, 4100}, {3, 70001}, {2051, 24}, {40000, 24}}) {
      const std::int64_t N = size.first, C = size.second;
      for (const bool add : {false, true}) {
        SCOPED_TRACE(::testing::Message() << N << " x " << C << (add ? " add" : ""));
        const auto b = numbers.normal<T>(C), y = numbers.normal<T>(N * C);
        const auto written = same_anywhere([&](std::int64_t shift) {
          const Shifted<T> on_b(b, shift), dy(y, shift);
          const Shifted<T> on_y = add ? Shifted<T>(y, shift) : Shifted<T>(N * C, shift);
          const Shifted<T> db = add ? Shifted<T>(b, shift) : Shifted<T>(C, shift);
          const Shifted<T> elsewhere(y, shift);
          const Shifted<T> sum(N * C, shift);
          table<T>().bias_forward(N, C, on_b, add ? elsewhere.data() : nullptr, sum);
          table<T>().bias_forward(N, C, on_b, add ? on_y.data() : nullptr, on_y);
          table<T>().bias_backward(N, C, dy, db, add);
          return std::vector<std::vector<T>>{on_y.host(), db.host(), sum.host()};
        });
        std::vector<T> expected = y;
        table<T>(level()).bias_forward(N, C, b.data(), add ? y.data() : nullptr, expected.data());
        EXPECT_TRUE(same_bits(written[0], expected));
        EXPECT_TRUE(same_bits(written[2], expected));
        std::vector<double> db = widened(b);
        table<double>(level()).bias_backward(N, C, widened(y).data(), db.data(), add);
        EXPECT_LE(relative_error(written[1], db), kTolerance<T>);
      }
    }
  });
}

TEST_F(DeviceBias, TheGradientOfNoRowsIsZeroOrWhatWasThere) {
  const DeviceArray<float> dy(std::int64_t{1}), db(std::int64_t{3}), kept(std::vector<float>{1, 2, 3});
  table<float>().bias_backward(0, 3, dy, db, false);
  table<float>().bias_backward(0, 3, dy, kept, true);
  EXPECT_EQ(db.host(), (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(kept.host(), (std::vector<float>{1, 2, 3}));
}

}  // namespace
}  // namespace trireme::kernels
