// Matrix products, as libtrireme_torch.so computes them, and the number of threads that they and OpenMP use.
#include <omp.h>

#include <algorithm>
#include <atomic>

#include "base/error.h"
#include "base/torch_library.h"
#include "kernels/cuda/library.h"

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

// c (+)= the fp32 sums of a tile, rounded.
void round_rows(std::int64_t rows, std::int64_t columns, float* sums, float16* c, std::int64_t ldc, bool add) {
  const Table<float16>& of = table<float16>();
  for (std::int64_t i = 0; i < rows; ++i) {
    if (add) of.accumulate(columns, c + i * ldc, sums + i * columns, false);
    of.cast_from_float(columns, sums + i * columns, c + i * ldc);
  }
}

}  // namespace

template <>
void gemm(bool a_transposed, bool b_transposed, std::int64_t m, std::int64_t n, std::int64_t k, const float* a,
          std::int64_t lda, const float* b, std::int64_t ldb, float* c, std::int64_t ldc, bool add) {
  products().f32(a_transposed, b_transposed, m, n, k, a, lda, b, ldb, c, ldc, add);
}
template <>
void gemm(bool a_transposed, bool b_transposed, std::int64_t m, std::int64_t n, std::int64_t k, const double* a,
          std::int64_t lda, const double* b, std::int64_t ldb, double* c, std::int64_t ldc, bool add) {
  products().f64(a_transposed, b_transposed, m, n, k, a, lda, b, ldb, c, ldc, add);
}
template <>
void gemm(bool a_transposed, bool b_transposed, std::int64_t m, std::int64_t n, std::int64_t k, const bfloat16* a,
          std::int64_t lda, const bfloat16* b, std::int64_t ldb, bfloat16* c, std::int64_t ldc, bool add) {
  products().bf16(a_transposed, b_transposed, m, n, k, a, lda, b, ldb, c, ldc, add);
}
// In tiles whose sums lie on the stack: LibTorch's own fp16 products reach a tenth of this speed where the CPU has no
// AVX512-FP16.
template <>
void gemm(bool a_transposed, bool b_transposed, std::int64_t m, std::int64_t n, std::int64_t k, const float16* a,
          std::int64_t lda, const float16* b, std::int64_t ldb, float16* c, std::int64_t ldc, bool add) {
  if (products().f16 != nullptr) {
    return products().f16(a_transposed, b_transposed, m, n, k, a, lda, b, ldb, c, ldc, add);
  }
  constexpr std::int64_t kTile = 256;
  float sums[kTile * kTile];
  for (std::int64_t i = 0; i < m; i += kTile) {
    const std::int64_t rows = std::min(kTile, m - i);
    for (std::int64_t j = 0; j < n; j += kTile) {
      const std::int64_t columns = std::min(kTile, n - j);
      products().f16_unrounded(a_transposed, b_transposed, rows, columns, k, a + (a_transposed ? i : i * lda), lda,
                               b + (b_transposed ? j * ldb : j), ldb, sums, columns, false);
      round_rows(rows, columns, sums, c + i * ldc + j, ldc, add);
    }
  }
}

template <>
void gemm_unrounded(bool a_transposed, bool b_transposed, std::int64_t m, std::int64_t n, std::int64_t k,
                    const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float* c, std::int64_t ldc,
                    bool add) {
  products().f32(a_transposed, b_transposed, m, n, k, a, lda, b, ldb, c, ldc, add);
}
template <>
void gemm_unrounded(bool a_transposed, bool b_transposed, std::int64_t m, std::int64_t n, std::int64_t k,
                    const double* a, std::int64_t lda, const double* b, std::int64_t ldb, double* c, std::int64_t ldc,
                    bool add) {
  products().f64(a_transposed, b_transposed, m, n, k, a, lda, b, ldb, c, ldc, add);
}
template <>
void gemm_unrounded(bool a_transposed, bool b_transposed, std::int64_t m, std::int64_t n, std::int64_t k,
                    const bfloat16* a, std::int64_t lda, const bfloat16* b, std::int64_t ldb, float* c,
                    std::int64_t ldc, bool add) {
  products().bf16_unrounded(a_transposed, b_transposed, m, n, k, a, lda, b, ldb, c, ldc, add);
}
template <>
void gemm_unrounded(bool a_transposed, bool b_transposed, std::int64_t m, std::int64_t n, std::int64_t k,
                    const float16* a, std::int64_t lda, const float16* b, std::int64_t ldb, float* c, std::int64_t ldc,
                    bool add) {
  products().f16_unrounded(a_transposed, b_transposed, m, n, k, a, lda, b, ldb, c, ldc, add);
}

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
