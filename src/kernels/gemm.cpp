// Matrix products, as libtrireme_torch.so computes them, and the number of threads that they and OpenMP use.
#include <omp.h>

#include "base/error.h"
#include "base/torch_library.h"
#include "kernels/gemm_table.h"

namespace trireme::kernels {
namespace {

// A thread that set its number has LibTorch told with its first product, so that setting it loads nothing. A worker of
// OpenMP has set none.
thread_local bool threads_to_tell = false;

const GemmTable& products() {
  static const GemmTable& table = *static_cast<const GemmTable*>(torch_symbol("trireme_gemm_table"));
  if (threads_to_tell) {
    table.set_num_threads(omp_get_max_threads());
    threads_to_tell = false;
  }
  return table;
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

void set_num_threads(int threads) {
  TRIREME_CHECK(threads >= 1, "compute threads must be at least one");
  omp_set_num_threads(threads);
  threads_to_tell = true;
}
int num_threads() {
  return omp_get_max_threads();
}

}  // namespace trireme::kernels
