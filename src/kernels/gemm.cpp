// Matrix products, as libtrireme_torch.so computes them, and the number of threads that they and OpenMP use.
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/torch_library.h"
#include "kernels/cuda/library.h"
#include "kernels/gemm_table.h"

namespace trireme::kernels {
namespace {

// A thread that set its number has LibTorch told with its first product, so that setting it loads nothing. A worker of
// OpenMP has set none.
thread_local bool threads_to_tell = false;
std::atomic<bool> loaded = false;

const GemmTable& products() {
  if (const CudaLibrary* device = current_device()) return *device->gemm;
  static const GemmTable& table = *static_cast<const GemmTable*>(torch_symbol("trireme_gemm_table"));
  loaded = true;
  if (threads_to_tell) {
    table.set_num_threads(omp_get_max_threads());
    threads_to_tell = false;
  }
  return table;
}

// Where nothing but c can be added to: what else is to be added is put there. Whether there is anything.
template <class T>
const T* gather_in_place(std::int64_t m, std::int64_t n, T* c, std::int64_t ldc, const T* addend, const T* bias) {
  const bool is_elsewhere = addend != nullptr && addend != c;
  TRIREME_CHECK(ldc == n || (bias == nullptr && !is_elsewhere), "gemm: a bias, or an addend elsewhere, of a strided c");
  if (bias != nullptr) {
    table<T>().bias_forward(m, n, bias, addend, c);
  } else if (is_elsewhere) {
    copy(c, addend, m * n * static_cast<std::int64_t>(sizeof(T)));
  }
  return bias != nullptr || addend != nullptr ? c : nullptr;
}

template <class T>
GemmTable::Gemm<T, T> rounded_product() {
  const GemmTable& of = products();
  if constexpr (std::is_same_v<T, float>) return of.f32;
  if constexpr (std::is_same_v<T, double>) return of.f64;
  if constexpr (std::is_same_v<T, bfloat16>) return of.bf16;
  if constexpr (std::is_same_v<T, float16>) return of.f16;
}

// c (+)= the fp32 sums of a tile, rounded.
template <class T>
void round_rows(std::int64_t rows, std::int64_t columns, float* sums, T* c, std::int64_t ldc, bool add) {
  const Table<T>& of = table<T>();
  for (std::int64_t i = 0; i < rows; ++i) {
    if (add) of.accumulate(columns, c + i * ldc, sums + i * columns, false);
    of.cast_from_float(columns, sums + i * columns, c + i * ldc);
  }
}

template <class T>
auto unrounded_product() {
  const GemmTable& of = products();
  if constexpr (std::is_same_v<T, bfloat16>) return of.bf16_unrounded;
  if constexpr (std::is_same_v<T, float16>) return of.f16_unrounded;
}

// In tiles whose sums lie on the stack: LibTorch's own products reach a tenth of this speed in fp16 where the CPU has
// no AVX512-FP16, and in bf16 where it has no AVX-512.
template <class T>
void gemm_in_tiles(bool a_transposed, bool b_transposed, std::int64_t m, std::int64_t n, std::int64_t k, const T* a,
                   std::int64_t lda, const T* b, std::int64_t ldb, T* c, std::int64_t ldc, bool add) {
  float sums[kTile * kTile];
  for (std::int64_t i = 0; i < m; i += kTile) {
    const std::int64_t rows = std::min(kTile, m - i);
    for (std::int64_t j = 0; j < n; j += kTile) {
      const std::int64_t columns = std::min(kTile, n - j);
      for (std::int64_t l = 0; l == 0 || l < k; l += kTileDepth) {
        unrounded_product<T>()(a_transposed, b_transposed, rows, columns, std::min(kTileDepth, k - l),
                               a + (a_transposed ? l * lda + i : i * lda + l), lda,
                               b + (b_transposed ? j * ldb + l : l * ldb + j), ldb, sums, columns,
                               l > 0 ? sums : nullptr, nullptr);
      }
      round_rows(rows, columns, sums, c + i * ldc + j, ldc, add);
    }
  }
}

}  // namespace

template <class T>
void gemm(bool a_transposed, bool b_transposed, std::int64_t m, std::int64_t n, std::int64_t k, const T* a,
          std::int64_t lda, const T* b, std::int64_t ldb, T* c, std::int64_t ldc, const T* addend, const T* bias) {
  if (current_device() == nullptr) addend = gather_in_place(m, n, c, ldc, addend, std::exchange(bias, nullptr));
  if (const auto product = rounded_product<T>()) {
    product(a_transposed, b_transposed, m, n, k, a, lda, b, ldb, c, ldc, addend, bias);
  } else if constexpr (sizeof(T) == 2) {
    gemm_in_tiles(a_transposed, b_transposed, m, n, k, a, lda, b, ldb, c, ldc, addend != nullptr);
  }
}

template <class T>
void gemm_unrounded(bool a_transposed, bool b_transposed, std::int64_t m, std::int64_t n, std::int64_t k, const T* a,
                    std::int64_t lda, const T* b, std::int64_t ldb, typename AccumulatorOf<T>::type* c,
                    std::int64_t ldc, bool add) {
  const auto product = [] {
    if constexpr (sizeof(T) == 2) return unrounded_product<T>();
    if constexpr (sizeof(T) > 2) return rounded_product<T>();
  }();
  product(a_transposed, b_transposed, m, n, k, a, lda, b, ldb, c, ldc, add ? c : nullptr, nullptr);
}

#define TRIREME_INSTANCES(T)                                                                                           \
  template void gemm(bool, bool, std::int64_t, std::int64_t, std::int64_t, const T*, std::int64_t, const T*,           \
                     std::int64_t, T*, std::int64_t, const T*, const T*);                                              \
  template void gemm_unrounded(bool, bool, std::int64_t, std::int64_t, std::int64_t, const T*, std::int64_t, const T*, \
                               std::int64_t, typename AccumulatorOf<T>::type*, std::int64_t, bool);
TRIREME_INSTANCES(float)
TRIREME_INSTANCES(double)
TRIREME_INSTANCES(bfloat16)
TRIREME_INSTANCES(float16)

void set_num_threads(int threads) {
  TRIREME_CHECK(threads >= 1, "compute threads must be at least one");
  omp_set_num_threads(threads);
  threads_to_tell = true;
}
void release_library_memory() {
  if (loaded && current_device() == nullptr) products().release_memory();
}
int num_threads() {
  return omp_get_max_threads();
}

}  // namespace trireme::kernels
