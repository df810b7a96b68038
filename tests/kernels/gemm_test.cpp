// Matrix products: every transposition, strides, additions and empty sizes, and the same bits wherever the memory lies.
#include <cmath>
#include <cstdlib>
#include <memory>
#include <thread>

#include "kernels/support.h"

namespace trireme::kernels {
namespace {

struct Product {
  bool a_transposed, b_transposed, add;
  std::int64_t m, n, k, gap;  // gap: elements between rows that belong to others
  std::int64_t a_rows() const { return a_transposed ? k : m; }
  std::int64_t b_rows() const { return b_transposed ? n : k; }
  std::int64_t lda() const { return (a_transposed ? m : k) + gap; }
  std::int64_t ldb() const { return (b_transposed ? k : n) + gap; }
  std::int64_t ldc() const { return n + gap; }
};

// largest: of m and n.
Product random_product(Numbers& numbers, std::int64_t largest) {
  const auto flip = [&] { return numbers.below(2) == 1; };
  const auto size = [&](std::int64_t most) { return numbers.below(8) == 0 ? 0 : 1 + numbers.below(most); };
  return {flip(), flip(), flip(), size(largest), size(largest), size(70), numbers.below(2) * numbers.below(9)};
}

template <class T, class C>
std::vector<double> reference(const Product& p, const std::vector<T>& a, const std::vector<T>& b,
                              const std::vector<C>& c) {
  std::vector<double> result(c.begin(), c.end());
  for (std::int64_t i = 0; i < p.m; ++i) {
    for (std::int64_t j = 0; j < p.n; ++j) {
      double& sum = result[i * p.ldc() + j];
      if (!p.add) sum = 0;
      for (std::int64_t l = 0; l < p.k; ++l) {
        sum += static_cast<double>(a[p.a_transposed ? l * p.lda() + i : i * p.lda() + l]) *
               static_cast<double>(b[p.b_transposed ? j * p.ldb() + l : l * p.ldb() + j]);
      }
    }
  }
  return result;
}

// bound is relative to the size of a sum of k products.
template <class T, class C, class Gemm>
void check_products(Gemm gemm, double bound, int products = 150, std::int64_t largest = 70) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  for (int i = 0; i < products; ++i) {
    const Product p = random_product(numbers, largest);
    const auto a = numbers.normal<T>(p.a_rows() * p.lda()), b = numbers.normal<T>(p.b_rows() * p.ldb());
    auto c = numbers.normal<C>(p.m * p.ldc());
    const std::vector<double> expected = reference(p, a, b, c);
    gemm(p.a_transposed, p.b_transposed, p.m, p.n, p.k, a.data(), p.lda(), b.data(), p.ldb(), c.data(), p.ldc(), p.add);
    for (std::size_t e = 0; e < c.size(); ++e) {
      const double size = std::sqrt(static_cast<double>(p.k)) + 1 + std::abs(expected[e]);
      ASSERT_NEAR(static_cast<double>(c[e]), expected[e], bound * size)
          << p.m << "x" << p.n << "x" << p.k << " gap " << p.gap << (p.a_transposed ? " at" : "")
          << (p.b_transposed ? " bt" : "") << (p.add ? " add" : "");
    }
  }
}

// gemm, adding in place.
template <class T>
void in_place(bool a_transposed, bool b_transposed, std::int64_t m, std::int64_t n, std::int64_t k, const T* a,
              std::int64_t lda, const T* b, std::int64_t ldb, T* c, std::int64_t ldc, bool add) {
  gemm(a_transposed, b_transposed, m, n, k, a, lda, b, ldb, c, ldc, add ? c : nullptr);
}

TEST(Gemm, EqualsThePlainSum) {
  check_products<float, float>(in_place<float>, 2e-6);
  check_products<double, double>(in_place<double>, 1e-14);
  check_products<bfloat16, bfloat16>(in_place<bfloat16>, 0.004);         // rounded once, to half of 2^-8
  check_products<float16, float16>(in_place<float16>, 0.0005);           // to half of 2^-10
  check_products<float16, float16>(in_place<float16>, 0.0005, 20, 700);  // of several tiles
}

TEST(Gemm, UnroundedKeepsFloatSums) {
  check_products<float, float>(gemm_unrounded<float>, 2e-6);
  check_products<double, double>(gemm_unrounded<double>, 1e-14);
  check_products<bfloat16, float>(gemm_unrounded<bfloat16>, 2e-6);
  check_products<float16, float>(gemm_unrounded<float16>, 2e-6);
}

// A matrix that begins `offset` bytes behind a page's begin.
template <class T>
struct Placed {
  std::unique_ptr<void, decltype(&std::free)> memory;
  T* data;
  Placed(const std::vector<T>& values, std::size_t offset)
      : memory(std::aligned_alloc(4096, (values.size() * sizeof(T) + offset + 4095) / 4096 * 4096), std::free),
        data(reinterpret_cast<T*>(static_cast<char*>(memory.get()) + offset)) {
    std::memcpy(static_cast<void*>(data), values.data(), values.size() * sizeof(T));
  }
};

template <class T, class C, class Gemm>
void check_places(Gemm gemm) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{96, 200, 130}, {5, 64, 33}, {300, 40, 257}}) {
    const auto a = numbers.normal<T>(m * k), b = numbers.normal<T>(n * k);
    std::vector<C> first;
    for (const std::size_t offset : {0, 64, 192, 1984, 0}) {
      const Placed<T> pa(a, offset), pb(b, (offset * 3 + 64) % 4096);
      const Placed<C> pc(std::vector<C>(m * n), (offset * 5 + 128) % 4096);
      gemm(false, true, m, n, k, pa.data, k, pb.data, k, pc.data, n, false);
      const std::vector<C> c(pc.data, pc.data + m * n);
      if (first.empty()) first = c;
      EXPECT_TRUE(same_bits(c, first)) << "offset " << offset;
    }
  }
}

TEST(Gemm, BitsDoNotDependOnWhereTheMemoryLies) {
  check_places<float, float>(in_place<float>);
  check_places<bfloat16, bfloat16>(in_place<bfloat16>);
  check_places<bfloat16, float>(gemm_unrounded<bfloat16>);
  check_places<float16, float16>(in_place<float16>);
  check_places<float16, float>(gemm_unrounded<float16>);
}

template <class T>
void check_addends(double bound) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  constexpr std::int64_t m = 37, n = 300, k = 20;
  const auto a = numbers.normal<T>(m * k), b = numbers.normal<T>(k * n);
  for (const bool adds : {false, true}) {
    for (const bool has_bias : {false, true}) {
      const auto addend = numbers.normal<T>(m * n), bias = numbers.normal<T>(n);
      std::vector<T> c(m * n, T(1e4f));
      gemm(false, false, m, n, k, a.data(), k, b.data(), n, c.data(), n, adds ? addend.data() : nullptr,
           has_bias ? bias.data() : nullptr);
      for (std::int64_t e = 0; e < m * n; ++e) {
        double expected = adds ? static_cast<double>(addend[e]) : 0.0;
        if (has_bias) expected += static_cast<double>(bias[e % n]);
        for (std::int64_t l = 0; l < k; ++l) {
          expected += static_cast<double>(a[e / n * k + l]) * static_cast<double>(b[l * n + e % n]);
        }
        ASSERT_NEAR(static_cast<double>(c[e]), expected, bound * (std::abs(expected) + std::sqrt(k)))
            << (adds ? "addend " : "") << (has_bias ? "bias" : "");
      }
    }
  }
}

TEST(Gemm, AddsWhatLiesElsewhereAndABias) {
  check_addends<float>(2e-6);
  check_addends<double>(1e-14);
  check_addends<bfloat16>(0.008);  // rounded twice
  check_addends<float16>(0.001);
}

TEST(Gemm, RefusesSizesBeyondTheLibrarysIntegers) {
  float x = 0;
  EXPECT_ANY_THROW(gemm<float>(false, false, std::int64_t{1} << 31, 1, 1, &x, 1, &x, 1, &x, 1));
}

// Ranks are threads of one process in tests: what one sets must not change the others.
TEST(Gemm, ThreadsAreCountedForEachCallingThread) {
  const Threads here(2);
  int seen = 0;
  std::thread([&] {
    set_num_threads(1);
    seen = num_threads();
  }).join();
  EXPECT_EQ(seen, 1);
  EXPECT_EQ(num_threads(), 2);
  std::vector<float> a(64 * 64, 1.0f), c(64 * 64);
  gemm<float>(false, false, 64, 64, 64, a.data(), 64, a.data(), 64, c.data(), 64);
  EXPECT_EQ(num_threads(), 2) << "a product changed the number of threads";
  EXPECT_ANY_THROW(set_num_threads(0));
}

}  // namespace
}  // namespace trireme::kernels
