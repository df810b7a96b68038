#include "base/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "base/hash.h"

namespace trireme {
namespace {

using Block = std::array<std::uint32_t, 4>;

// The three vectors that the authors of Philox published (Random123, philox4x32-10).
TEST(Random, PhiloxGivesThePublishedVectors) {
  EXPECT_EQ(random_block(0, 0, 0), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(random_block(~0ull, ~0ull, ~0ull), (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(random_block(0x299f31d0a4093822ull, 0x0370734413198a2eull, 0x85a308d3243f6a88ull),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, NumbersAreTheHalvesOfBlocks) {
  for (std::uint64_t index : {0ull, 1ull, 17ull, 1ull << 40}) {
    const Block block = random_block(7, 9, index);
    EXPECT_EQ(random_u64(7, 9, 2 * index), block[0] | std::uint64_t{block[1]} << 32);
    EXPECT_EQ(random_u64(7, 9, 2 * index + 1), block[2] | std::uint64_t{block[3]} << 32);
  }
}

TEST(Random, UniformsAreInsideTheOpenIntervalAndEvenlySpread) {
  constexpr int kDraws = 100000, kBins = 50;
  std::vector<int> bins(kBins, 0);
  for (int i = 0; i < kDraws; ++i) {
    const double value = random_uniform(1, stream_id("uniform"), static_cast<std::uint64_t>(i));
    ASSERT_GT(value, 0);
    ASSERT_LT(value, 1);
    ++bins[static_cast<std::size_t>(value * kBins)];
  }
  double chi_square = 0;
  const double expected = static_cast<double>(kDraws) / kBins;
  for (const int count : bins) chi_square += std::pow(count - expected, 2) / expected;
  EXPECT_LT(chi_square, 85.4) << "one in a thousand at 49 degrees of freedom";
}

TEST(Random, RunsOfNormalsHaveTheBitsOfSingleOnes) {
  std::vector<float> run(200000);
  for (const std::uint64_t first : {0ull, 1ull, (1ull << 33) + 7}) {
    fill_normal(3, stream_id("run"), first, 0.02, run);
    for (std::size_t i = 0; i < run.size(); ++i)
      ASSERT_EQ(run[i], static_cast<float>(random_normal(3, stream_id("run"), first + i) * 0.02)) << first + i;
  }
  std::array<float, 5> few{};
  fill_normal(3, stream_id("run"), 511, 1, few);
  for (std::size_t i = 0; i < few.size(); ++i)
    EXPECT_EQ(few[i], static_cast<float>(random_normal(3, stream_id("run"), 511 + i)));
}

// Both roundings of the scale meet at the ends: the largest and the smallest uniform still have a finite quantile.
TEST(Random, ExtremeUniformsHaveFiniteNormals) {
  EXPECT_NEAR(normal_quantile(0x1p-53), -8.2095, 1e-4);
  EXPECT_NEAR(normal_quantile(1 - 0x1p-53), 8.2095, 1e-4);
  EXPECT_EQ(normal_quantile(0.5), 0);
}

// The distribution function of the quantile is p again: checked in extended precision, so that the reference is better
// than what is measured. The error in x is the error in p over the density.
TEST(Random, NormalQuantileIsAccurateOverTheWholeRange) {
  static_assert(std::numeric_limits<long double>::digits >= 64, "the reference needs more than double precision");
  const long double sqrt2 = std::sqrt(2.0L), sqrt_2pi = std::sqrt(2 * std::acos(-1.0L));
  std::vector<double> probabilities;
  for (int i = 1; i < 4000; ++i) probabilities.push_back(i / 8000.0);
  for (double p = 0.07; p > 1e-300; p *= 0.83) probabilities.push_back(p);
  for (const double p : probabilities) {
    const double x = normal_quantile(p);
    const long double density = std::exp(-0.5L * x * x) / sqrt_2pi;
    const long double cdf = 0.5L * std::erfc(-x / sqrt2);
    const auto relative = static_cast<double>(std::fabs((cdf - p) / density / x));
    ASSERT_LT(relative, 1e-15) << "p = " << p << ", x = " << x;
  }
}

TEST(Random, NormalsHaveTheMomentsOfTheNormalDistribution) {
  constexpr int kDraws = 200000;
  double sum = 0, squares = 0, fourth = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double x = random_normal(3, stream_id("normal"), static_cast<std::uint64_t>(i));
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
  }
  const double sigma = 1 / std::sqrt(kDraws);
  EXPECT_NEAR(sum / kDraws, 0, 4 * sigma);
  EXPECT_NEAR(squares / kDraws, 1, 4 * sigma * std::sqrt(2));
  EXPECT_NEAR(fourth / kDraws, 3, 4 * sigma * std::sqrt(96));
}

// The digest is fixed: another compiler, optimisation level or processor must give these bits, or every layout's
// initial weights change. 30,000 draws pass through all three regions of the approximation.
TEST(Random, NormalsHaveTheSameBitsEverywhere) {
  std::vector<double> values;
  for (std::uint64_t i = 0; i < 30000; ++i) values.push_back(random_normal(42, stream_id("golden"), i));
  for (double p = 0.5; p > 1e-300; p /= 3) values.push_back(normal_quantile(p));
  EXPECT_EQ(digest(std::as_bytes(std::span(values))), "fe68e5db1ab93cfca453a6cbe8091a08");
}

TEST(Random, StreamsAndSeedsAreIndependent) {
  std::set<std::uint64_t> seen;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    for (const char* name : {"a", "b", "init/layers.0", "init/layers.1"}) {
      for (std::uint64_t index = 0; index < 50; ++index) seen.insert(random_u64(seed, stream_id(name), index));
    }
  }
  EXPECT_EQ(seen.size(), 20u * 4 * 50);
}

TEST(Permute, IsABijectionForEverySize) {
  std::vector<std::uint64_t> sizes{127, 128, 129, 255, 256, 257, 1000, 4095, 4096, 4097, 65535, 65536, 65537, 100003};
  for (std::uint64_t n = 1; n <= 70; ++n) sizes.push_back(n);
  for (const std::uint64_t n : sizes) {
    std::vector<bool> hit(n, false);
    for (std::uint64_t i = 0; i < n; ++i) {
      const std::uint64_t image = permute(5, stream_id("epoch/0"), n, i);
      ASSERT_LT(image, n);
      ASSERT_FALSE(hit[image]) << "n = " << n << ", index " << i;
      hit[image] = true;
    }
  }
}

TEST(Permute, WorksUpToTheLargestSizes) {
  for (const std::uint64_t n : {std::uint64_t{1} << 63, (std::uint64_t{1} << 63) + 1, ~std::uint64_t{0}}) {
    std::set<std::uint64_t> images;
    for (std::uint64_t i = 0; i < 500; ++i) {
      images.insert(permute(1, 2, n, i));
      images.insert(permute(1, 2, n, n - 1 - i));
    }
    EXPECT_EQ(images.size(), 1000u);
    EXPECT_LT(*images.rbegin(), n);
  }
}

// Over many seeds every index goes to every place equally often, also for sizes where the network has few bits.
TEST(Permute, SendsEveryIndexEverywhereEquallyOften) {
  for (const std::uint64_t n : {2u, 3u, 5u, 8u, 13u}) {
    constexpr int kSeeds = 4000;
    std::vector<int> counts(n * n, 0);
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      for (std::uint64_t i = 0; i < n; ++i) ++counts[i * n + permute(seed, 11, n, i)];
    }
    const double expected = static_cast<double>(kSeeds) / static_cast<double>(n);
    for (const int count : counts) EXPECT_NEAR(count, expected, 5 * std::sqrt(expected)) << "n = " << n;
  }
}

TEST(Permute, DiffersBySeedAndByStream) {
  const auto whole = [](std::uint64_t seed, std::uint64_t stream) {
    std::vector<std::uint64_t> images;
    for (std::uint64_t i = 0; i < 100; ++i) images.push_back(permute(seed, stream, 100, i));
    return images;
  };
  EXPECT_EQ(whole(1, 1), whole(1, 1));
  EXPECT_NE(whole(1, 1), whole(2, 1));
  EXPECT_NE(whole(1, 1), whole(1, 2));
}

}  // namespace
}  // namespace trireme
