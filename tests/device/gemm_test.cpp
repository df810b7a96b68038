// Products on a device beside those of the CPU.
#include "device/support.h"
#include "kernels/products.h"

namespace trireme::kernels {
namespace {

class DeviceGemm : public OnDevice {};

template <class T, class C, class Function>
void compare(Function product, bool a_transposed, bool b_transposed, std::int64_t m, std::int64_t n, std::int64_t k,
             bool add, Numbers& numbers) {
  SCOPED_TRACE(::testing::Message() << m << " x " << n << " x " << k << (a_transposed ? " aT" : "")
                                    << (b_transposed ? " bT" : "") << (add ? " add" : ""));
  const std::int64_t lda = (a_transposed ? m : k) + 8, ldb = (b_transposed ? k : n) + 16, ldc = n + 8;
  const auto a = numbers.normal<T>((a_transposed ? k : m) * lda), b = numbers.normal<T>((b_transposed ? n : k) * ldb);
  const auto before = numbers.normal<C>(m * ldc);
  std::vector<double> expected;
  for (const C& value : before) expected.push_back(static_cast<double>(value));
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = add ? expected[i * ldc + j] : 0.0;
      for (std::int64_t l = 0; l < k; ++l) {
        sum += static_cast<double>(a[a_transposed ? l * lda + i : i * lda + l]) *
               static_cast<double>(b[b_transposed ? j * ldb + l : l * ldb + j]);
      }
      expected[i * ldc + j] = sum;
    }
  }
  const DeviceArray<T> on_a(a), on_b(b);
  const DeviceArray<C> on_c(before);
  product(a_transposed, b_transposed, m, n, k, on_a.data(), lda, on_b.data(), ldb, on_c.data(), ldc, add);
  EXPECT_LE(relative_error(on_c.host(), expected), kTolerance<C>);
}

// gemm, adding in place.
template <class T>
void in_place(bool a_transposed, bool b_transposed, std::int64_t m, std::int64_t n, std::int64_t k, const T* a,
              std::int64_t lda, const T* b, std::int64_t ldb, T* c, std::int64_t ldc, bool add) {
  gemm(a_transposed, b_transposed, m, n, k, a, lda, b, ldb, c, ldc, add ? c : nullptr);
}

template <class T>
void compare_gemm(Numbers& numbers) {
  for (const bool a_transposed : {false, true}) {
    for (const bool b_transposed : {false, true}) {
      for (const bool add : {false, true}) {
        for (const std::int64_t k : {1, 24, 200}) {
          compare<T, T>(in_place<T>, a_transposed, b_transposed, 40, 72, k, add, numbers);
          compare<T, float>(gemm_unrounded<T>, a_transposed, b_transposed, 33, 7, k, add, numbers);
        }
      }
    }
  }
}

TEST_F(DeviceGemm, HasTheProductsOfTheFormula) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  compare_gemm<float>(numbers);
  compare_gemm<bfloat16>(numbers);
  compare_gemm<float16>(numbers);
}

TEST_F(DeviceGemm, NothingToSumIsZeroOrWhatWasThere) {
  const std::vector<float> before(6, 3.0f);
  const DeviceArray<float> c(before), none(std::int64_t{1});
  gemm<float>(false, false, 2, 3, 0, none.data(), 1, none.data(), 3, c.data(), 3, c.data());
  EXPECT_EQ(c.host(), before);
  gemm<float>(false, false, 2, 3, 0, none.data(), 1, none.data(), 3, c.data(), 3);
  EXPECT_EQ(c.host(), std::vector<float>(6, 0.0f));
  const DeviceArray<float> bias(std::vector<float>{1, 2, 3}), elsewhere(before);
  gemm<float>(false, false, 2, 3, 0, none.data(), 1, none.data(), 3, c.data(), 3, elsewhere.data());
  EXPECT_EQ(c.host(), before);
  gemm<float>(false, false, 2, 3, 0, none.data(), 1, none.data(), 3, c.data(), 3, elsewhere.data(), bias.data());
  EXPECT_EQ(c.host(), (std::vector<float>{4, 5, 6, 4, 5, 6}));
}

template <class T>
void compare_addends(Numbers& numbers, std::int64_t m, std::int64_t n, std::int64_t k) {
  const auto a = numbers.normal<T>(m * k), b = numbers.normal<T>(n * k), addend = numbers.normal<T>(m * n),
             bias = numbers.normal<T>(n);
  const DeviceArray<T> on_a(a), on_b(b), on_addend(addend), on_bias(bias);
  for (const bool adds : {false, true}) {
    for (const bool has_bias : {false, true}) {
      SCOPED_TRACE(::testing::Message() << m << "x" << n << "x" << k << (adds ? " addend" : "")
                                        << (has_bias ? " bias" : ""));
      const DeviceArray<T> c(m * n);
      gemm(false, true, m, n, k, on_a.data(), k, on_b.data(), k, c.data(), n, adds ? on_addend.data() : nullptr,
           has_bias ? on_bias.data() : nullptr);
      std::vector<double> expected;
      for (std::int64_t e = 0; e < m * n; ++e) {
        double sum =
            (adds ? static_cast<double>(addend[e]) : 0.0) + (has_bias ? static_cast<double>(bias[e % n]) : 0.0);
        for (std::int64_t l = 0; l < k; ++l) {
          sum += static_cast<double>(a[e / n * k + l]) * static_cast<double>(b[e % n * k + l]);
        }
        expected.push_back(sum);
      }
      EXPECT_LE(relative_error(c.host(), expected), kTolerance<T>);
    }
  }
}

TEST_F(DeviceGemm, AddsWhatLiesElsewhereAndABias) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{64, 96, 128}, {33, 7, 5}, {5, 768, 40}, {1, 1, 1}}) {
    compare_addends<float>(numbers, m, n, k);
    compare_addends<bfloat16>(numbers, m, n, k);
    compare_addends<float16>(numbers, m, n, k);
  }
}

// The product of compare_addends.
template <class T>
Product product_of(std::int64_t m, std::int64_t n, std::int64_t k, bool has_bias) {
  return {dtype_of<T>, dtype_of<T>, false, true, has_bias, m, n, k, k, k, n};
}

TEST_F(DeviceGemm, HasThemInEachWayThatTheLibraryKnows) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  constexpr std::int64_t m = 96, n = 136, k = 160;
  for (int way = 0; way < 9; ++way) {
    SCOPED_TRACE(way);
    ProductChoices choices;
    for (const bool has_bias : {false, true}) {
      for (const Product& product : {product_of<float>(m, n, k, has_bias), product_of<bfloat16>(m, n, k, has_bias),
                                     product_of<float16>(m, n, k, has_bias)}) {
        choices[product] = way;
      }
    }
    choose_products(choices);
    compare_addends<float>(numbers, m, n, k);
    compare_addends<bfloat16>(numbers, m, n, k);
    compare_addends<float16>(numbers, m, n, k);
  }
  choose_products({});
}

std::vector<Product> measured_products() {
  Product weight = product_of<bfloat16>(1024, 768, 2048, false);
  weight.result = DType::f32;
  weight.a_transposed = true, weight.b_transposed = false, weight.lda = 1024, weight.ldb = 768;
  return {product_of<bfloat16>(2048, 2304, 768, true), product_of<float>(512, 512, 512, false), weight};
}
TEST_F(DeviceGemm, TheFastestWayIsMeasured) {
  EXPECT_NE(product_library().find(device_facts(0).name), std::string::npos) << product_library();
  for (const Product& product : measured_products()) {
    SCOPED_TRACE(to_string(product));
    const int way = measure_product(product);
    EXPECT_GE(way, 0);
    EXPECT_LT(way, 8);
  }
}

// What is in use on the whole device: no other process may be there (bench/gpu_suite runs it by itself).
class DeviceAlone : public OnDevice {};
TEST_F(DeviceAlone, MeasuringAProductKeepsNoMemory) {
  if (brief()) GTEST_SKIP() << "a sanitizer's memory would be in it";
  for (const Product& product : measured_products()) {
    SCOPED_TRACE(to_string(product));
    const std::int64_t before = device_memory_in_use(0);
    measure_product(product);
    EXPECT_LE(device_memory_in_use(0), before + (64 << 20)) << "but for code and cuBLAS's own";
  }
}

}  // namespace
}  // namespace trireme::kernels
