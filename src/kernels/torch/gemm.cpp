// Matrix products by the libraries inside libtorch_cpu: MKL's BLAS for fp32, fp64, and bf16 and fp16 with fp32 sums,
// through the Fortran symbols that it exports (a tenth of the cost of a call through tensors), and oneDNN for bf16
// results where the CPU has AVX-512.
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <omp.h>

#include <algorithm>
#include <limits>

#include "base/cpu.h"
#include "base/error.h"
#include "kernels/gemm_table.h"
#include "kernels/torch/mkl_memory.h"

extern "C" {
void sgemm_(const char* transa, const char* transb, const int* m, const int* n, const int* k, const float* alpha,
            const float* a, const int* lda, const float* b, const int* ldb, const float* beta, float* c,
            const int* ldc);
void dgemm_(const char* transa, const char* transb, const int* m, const int* n, const int* k, const double* alpha,
            const double* a, const int* lda, const double* b, const int* ldb, const double* beta, double* c,
            const int* ldc);
void gemm_bf16bf16f32_(const char* transa, const char* transb, const int* m, const int* n, const int* k,
                       const float* alpha, const std::uint16_t* a, const int* lda, const std::uint16_t* b,
                       const int* ldb, const float* beta, float* c, const int* ldc);
void gemm_f16f16f32_(const char* transa, const char* transb, const int* m, const int* n, const int* k,
                     const float* alpha, const std::uint16_t* a, const int* lda, const std::uint16_t* b, const int* ldb,
                     const float* beta, float* c, const int* ldc);
int MKL_Set_Num_Threads_Local(int threads);
}

namespace trireme::kernels {
namespace {

int to_int(std::int64_t size) {
  TRIREME_CHECK(size >= 0 && size <= std::numeric_limits<int>::max(), "gemm: a size is outside 0 .. 2^31 - 1");
  return static_cast<int>(size);
}

template <class A, class C>
using Blas = void (*)(const char*, const char*, const int*, const int*, const int*, const C*, const A*, const int*,
                      const A*, const int*, const C*, C*, const int*);

template <class C>
void clear(std::int64_t m, std::int64_t n, C* c, std::int64_t ldc) {
  for (std::int64_t row = 0; row < m; ++row) std::fill_n(c + row * ldc, n, C(0.0f));
}

// BLAS is column-major: it computes the transpose of c, from b and a in this order.
template <class A, class C>
void call_blas(Blas<A, C> blas, bool a_transposed, bool b_transposed, std::int64_t m, std::int64_t n, std::int64_t k,
               const A* a, std::int64_t lda, const A* b, std::int64_t ldb, C* c, std::int64_t ldc, bool add) {
  if (m == 0 || n == 0) return;
  if (k == 0) {
    if (!add) clear(m, n, c, ldc);
    return;
  }
  const int rows = to_int(n), columns = to_int(m), inner = to_int(k);
  const int stride_a = to_int(lda), stride_b = to_int(ldb), stride_c = to_int(ldc);
  const C alpha = 1, beta = add ? 1 : 0;
  blas(b_transposed ? "T" : "N", a_transposed ? "T" : "N", &rows, &columns, &inner, &alpha, b, &stride_b, a, &stride_a,
       &beta, c, &stride_c);
}

at::Tensor view(const bfloat16* data, bool transposed, std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  void* memory = const_cast<bfloat16*>(data);
  const auto options = at::TensorOptions().dtype(at::kBFloat16);
  return transposed ? at::from_blob(memory, {rows, columns}, {1, stride}, options)
                    : at::from_blob(memory, {rows, columns}, {stride, 1}, options);
}

void gemm_f32(bool a_transposed, bool b_transposed, std::int64_t m, std::int64_t n, std::int64_t k, const float* a,
              std::int64_t lda, const float* b, std::int64_t ldb, float* c, std::int64_t ldc, const float* addend,
              const float*) {
  call_blas<float, float>(sgemm_, a_transposed, b_transposed, m, n, k, a, lda, b, ldb, c, ldc, addend != nullptr);
}
void gemm_f64(bool a_transposed, bool b_transposed, std::int64_t m, std::int64_t n, std::int64_t k, const double* a,
              std::int64_t lda, const double* b, std::int64_t ldb, double* c, std::int64_t ldc, const double* addend,
              const double*) {
  call_blas<double, double>(dgemm_, a_transposed, b_transposed, m, n, k, a, lda, b, ldb, c, ldc, addend != nullptr);
}
void gemm_bf16(bool a_transposed, bool b_transposed, std::int64_t m, std::int64_t n, std::int64_t k, const bfloat16* a,
               std::int64_t lda, const bfloat16* b, std::int64_t ldb, bfloat16* c, std::int64_t ldc,
               const bfloat16* addend, const bfloat16*) {
  if (m == 0 || n == 0) return;
  if (k == 0) {
    if (addend == nullptr) clear(m, n, c, ldc);
    return;
  }
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  const at::Tensor left = view(a, a_transposed, m, k, lda);
  const at::Tensor right = view(b, b_transposed, k, n, ldb);
  at::Tensor product = view(c, false, m, n, ldc);
  if (addend != nullptr) {
    at::addmm_out(product, product, left, right);
  } else {
    at::mm_out(product, left, right);
  }
}

template <class T, Blas<std::uint16_t, float> blas>
void gemm_unrounded_of(bool a_transposed, bool b_transposed, std::int64_t m, std::int64_t n, std::int64_t k, const T* a,
                       std::int64_t lda, const T* b, std::int64_t ldb, float* c, std::int64_t ldc, const float* addend,
                       const float*) {
  static_assert(sizeof(T) == sizeof(std::uint16_t));
  call_blas<std::uint16_t, float>(blas, a_transposed, b_transposed, m, n, k, reinterpret_cast<const std::uint16_t*>(a),
                                  lda, reinterpret_cast<const std::uint16_t*>(b), ldb, c, ldc, addend != nullptr);
}

void use_threads(int threads) {
  at::get_num_threads();  // makes LibTorch's own, lazy choice for this thread now, so that it does not undo ours later
  omp_set_num_threads(threads);
  MKL_Set_Num_Threads_Local(threads);
}

}  // namespace

extern "C" const GemmTable trireme_gemm_table;
const GemmTable trireme_gemm_table{.f32 = gemm_f32,
                                   .f64 = gemm_f64,
                                   .bf16 = x86_64_level() >= 4 ? gemm_bf16 : nullptr,
                                   .f16 = nullptr,
                                   .bf16_unrounded = gemm_unrounded_of<bfloat16, gemm_bf16bf16f32_>,
                                   .f16_unrounded = gemm_unrounded_of<float16, gemm_f16f16f32_>,
                                   .release_memory = release_mkl_memory,
                                   .set_num_threads = use_threads};

}  // namespace trireme::kernels
