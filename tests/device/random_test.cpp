#include <gtest/gtest.h>

#include "base/random.h"
#include "device/support.h"

namespace trireme::kernels {
namespace {

class DeviceRandom : public OnDevice {};

template <class T>
void compare_normals() {
  // Far tails are one number in two million.
  for (const NormalRows& d : {NormalRows{7, stream_id("init/a"), 0, 1, 3'000'000, 3'000'000, 3'000'000, 0, 0.02},
                              NormalRows{8, 3, 5, 70'000, 3, 7, 4, 0, 1.5}, NormalRows{8, 3, 1, 2, 5, 5, 6, 1, 0}}) {
    const auto size = static_cast<std::size_t>(d.rows * d.stride);
    const DeviceArray<T> out(std::vector<T>(size, from_double<T>(-1)));
    fill_normal_rows(d, dtype_of<T>, out.data());
    std::vector<float> expected(size, -1.0f);
    for (std::int64_t r = 0; r < d.rows; ++r) {
      const auto first = d.first + static_cast<std::uint64_t>(r * d.pitch);
      const auto row =
          std::span(expected).subspan(static_cast<std::size_t>(r * d.stride), static_cast<std::size_t>(d.columns));
      fill_normal(d.seed, d.stream, first, d.scale, row);
      if (d.mean != 0) std::fill(row.begin(), row.end(), static_cast<float>(d.mean));
    }
    const std::vector<T> seen = out.host();
    for (std::size_t i = 0; i < size; ++i) {
      ASSERT_EQ(static_cast<float>(seen[i]), static_cast<float>(T(expected[i]))) << i;
    }
  }
}

TEST_F(DeviceRandom, NormalsHaveTheHostsBits) {
  compare_normals<float>();
  compare_normals<bfloat16>();
  compare_normals<float16>();
}

}  // namespace
}  // namespace trireme::kernels
