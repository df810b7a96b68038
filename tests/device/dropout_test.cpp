#include "device/shifted.h"

namespace trireme::kernels {
namespace {

class DeviceDropout : public OnDevice {};

TEST_F(DeviceDropout, DrawsTheMasksOfTheCpu) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  for_each_type([&]<class T>() {
    for (const auto& size :
         std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {3, 15}, {2, 64}, {5, 83}, {3, 4096}, {4, 40007}}) {
      const std::int64_t B = size.first, n = size.second;
      for (const double probability : {0.0, 0.1, 0.9}) {
        SCOPED_TRACE(::testing::Message() << B << " x " << n << ", " << probability);
        const auto x = numbers.normal<T>(B * n);
        std::vector<std::uint64_t> keys(B);
        for (std::uint64_t& key : keys) key = static_cast<std::uint64_t>(numbers.below(INT64_MAX)) * 2;
        const std::uint64_t stream = 0x9123456789abcdefull;
        const DeviceArray<std::uint64_t> on_keys(keys);
        const auto written = same_anywhere([&](std::int64_t shift) {
          const Shifted<T> on_x(x, shift), y(B * n, shift), in_place(x, shift);
          const Dropout dropout{.probability = probability, .keys = on_keys, .stream = stream};
          table<T>().dropout(B, n, dropout, on_x, y);
          table<T>().dropout(B, n, dropout, in_place, in_place);
          return std::vector<std::vector<T>>{y.host(), in_place.host()};
        });
        std::vector<T> expected(B * n);
        table<T>(level()).dropout(B, n, {.probability = probability, .keys = keys.data(), .stream = stream}, x.data(),
                                  expected.data());
        EXPECT_TRUE(same_bits(written[0], expected));
        EXPECT_TRUE(same_bits(written[1], expected));
      }
    }
  });
}

}  // namespace
}  // namespace trireme::kernels
