#include "device/shifted.h"

namespace trireme::kernels {
namespace {

class DeviceRope : public OnDevice {};

struct Heads {
  std::int64_t N, heads, D, row_stride;
};

TEST_F(DeviceRope, RotatesByTheAnglesOfThePositionsAndBack) {
  constexpr std::int64_t kPositions = 50;
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  for_each_type([&]<class T>() {
    for (const Heads& s : {Heads{1, 1, 2, 2}, Heads{33, 3, 10, 37}, Heads{70, 5, 128, 1024}, Heads{19, 40, 64, 2560},
                           Heads{9, 2, 4120, 8240}, Heads{40, 9, 24, 216}}) {
      for (const int sign : {1, -1}) {
        SCOPED_TRACE(::testing::Message() << s.N << " rows of " << s.heads << " x " << s.D << ", sign " << sign);
        const auto x = numbers.normal<T>(s.N * s.row_stride);
        std::vector<std::int32_t> positions(s.N);
        for (std::int32_t& position : positions) position = static_cast<std::int32_t>(numbers.below(kPositions));
        std::vector<float> frequencies(s.D / 2), cos_sin(kPositions * s.D);
        for (std::int64_t i = 0; i < s.D / 2; ++i) frequencies[i] = std::pow(10.0f, -4.0f * i / s.D);
        make_rope_table(kPositions, s.D, frequencies.data(), 1.0, cos_sin.data());
        const DeviceArray<std::int32_t> on_positions(positions);
        const auto rotated = same_anywhere([&](std::int64_t shift) {
          const Shifted<T> on_x(x, shift);
          const Shifted<float> on_angles(cos_sin, shift);
          table<T>().rope(s.N, s.heads, s.D, s.row_stride, on_x, on_positions, on_angles, sign);
          return std::vector<std::vector<T>>{on_x.host()};
        })[0];
        std::vector<double> expected = widened(x);
        table<double>(level()).rope(s.N, s.heads, s.D, s.row_stride, expected.data(), positions.data(), cos_sin.data(),
                                    sign);
        EXPECT_LE(relative_error(rotated, expected), kTolerance<T>);
        for (std::int64_t n = 0; n < s.N; ++n) {
          for (std::int64_t c = s.heads * s.D; c < s.row_stride; ++c) {
            EXPECT_EQ(static_cast<float>(rotated[n * s.row_stride + c]), static_cast<float>(x[n * s.row_stride + c]));
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace trireme::kernels
