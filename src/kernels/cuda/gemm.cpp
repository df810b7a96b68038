// Matrix products by cuBLASLt.
#include <array>
#include <map>
#include <mutex>

#include "base/error.h"
#include "kernels/cuda/state.h"
#include "kernels/cuda/tables.h"
#include "kernels/level.h"

namespace trireme::kernels::cuda {
namespace {

// What a choice of algorithm depends on: one product of row-major matrices, and its types.
struct Product {
  cudaDataType_t operands, result;
  bool a_transposed, b_transposed, adds, has_bias;
  std::int64_t m, n, k, lda, ldb, ldc;
  auto operator<=>(const Product&) const = default;
};

struct Layout {
  cublasLtMatrixLayout_t handle = nullptr;
  // cuBLAS is column-major: a row-major matrix is its transpose.
  Layout(cudaDataType_t type, std::int64_t rows, std::int64_t columns, std::int64_t stride) {
    TRIREME_CUDA(cublasLtMatrixLayoutCreate(&handle, type, static_cast<std::uint64_t>(columns),
                                            static_cast<std::uint64_t>(rows), stride));
  }
  Layout(Layout&& other) noexcept : handle(std::exchange(other.handle, nullptr)) {}
  ~Layout() {
    if (handle != nullptr) cublasLtMatrixLayoutDestroy(handle);
  }
};

struct Description {
  cublasLtMatmulDesc_t handle = nullptr;
  Description() {
    // No TF32: fp32 means fp32.
    TRIREME_CUDA(cublasLtMatmulDescCreate(&handle, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  }
  Description(Description&& other) noexcept : handle(std::exchange(other.handle, nullptr)) {}
  ~Description() {
    if (handle != nullptr) cublasLtMatmulDescDestroy(handle);
  }
  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, Value value) const {
    TRIREME_CUDA(cublasLtMatmulDescSetAttribute(handle, attribute, &value, sizeof(value)));
  }
};

struct Preference {
  cublasLtMatmulPreference_t handle = nullptr;
  Preference() {
    TRIREME_CUDA(cublasLtMatmulPreferenceCreate(&handle));
    const auto bytes = static_cast<std::uint64_t>(kWorkspaceBytes);
    TRIREME_CUDA(
        cublasLtMatmulPreferenceSetAttribute(handle, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof(bytes)));
  }
  ~Preference() { cublasLtMatmulPreferenceDestroy(handle); }
};

// A product made ready: its transpose, b^T a^T, as cuBLAS sees it.
struct Ready {
  Description description;
  Layout first, second, result;
  cublasLtMatmulAlgo_t algorithm{};

  explicit Ready(const Product& p)
      : first(p.operands, p.b_transposed ? p.n : p.k, p.b_transposed ? p.k : p.n, p.ldb),
        second(p.operands, p.a_transposed ? p.k : p.m, p.a_transposed ? p.m : p.k, p.lda),
        result(p.result, p.m, p.n, p.ldc) {
    description.set(CUBLASLT_MATMUL_DESC_TRANSA, p.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    description.set(CUBLASLT_MATMUL_DESC_TRANSB, p.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (p.has_bias) description.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    const Preference preference;
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    TRIREME_CUDA(cublasLtMatmulAlgoGetHeuristic(cublas(), description.handle, first.handle, second.handle,
                                                result.handle, result.handle, preference.handle, 1, &found, &count));
    TRIREME_CHECK(count > 0, "cuBLAS knows no way to compute a product");
    algorithm = found.algo;
  }
};

// Kept for the life of the process: a training run has a few dozen.
const Ready& ready(const Product& product) {
  static std::mutex mutex;
  static std::map<Product, Ready> all;
  const std::lock_guard lock(mutex);
  const auto found = all.find(product);
  return found != all.end() ? found->second : all.emplace(product, Ready(product)).first->second;
}

template <class T>
constexpr cudaDataType_t kTypeOf = CUDA_R_32F;
template <>
constexpr cudaDataType_t kTypeOf<bfloat16> = CUDA_R_16BF;
template <>
constexpr cudaDataType_t kTypeOf<float16> = CUDA_R_16F;

template <class C>
void sum_of_nothing(std::int64_t m, std::int64_t n, C* c, std::int64_t ldc, const C* addend, const C* bias) {
  if (bias != nullptr) return bias_forward(m, n, bias, addend, c);
  if (addend == c) return;
  const std::size_t stride = static_cast<std::size_t>(ldc) * sizeof(C), width = static_cast<std::size_t>(n) * sizeof(C);
  if (addend == nullptr) {
    TRIREME_CUDA(cudaMemset2DAsync(c, stride, 0, width, static_cast<std::size_t>(m), current().stream));
  } else {
    TRIREME_CUDA(cudaMemcpy2DAsync(c, stride, addend, stride, width, static_cast<std::size_t>(m),
                                   cudaMemcpyDeviceToDevice, current().stream));
  }
}

template <class T, class C>
void gemm(bool a_transposed, bool b_transposed, std::int64_t m, std::int64_t n, std::int64_t k, const T* a,
          std::int64_t lda, const T* b, std::int64_t ldb, C* c, std::int64_t ldc, const C* addend, const C* bias) {
  if (m == 0 || n == 0) return;
  StreamState& state = current();
  if (k == 0) return sum_of_nothing(m, n, c, ldc, addend, bias);
  const bool adds = addend != nullptr, has_bias = bias != nullptr;
  const Ready& product =
      ready({kTypeOf<T>, kTypeOf<C>, a_transposed, b_transposed, adds, has_bias, m, n, k, lda, ldb, ldc});
  cublasLtMatmulDescOpaque_t description = *product.description.handle;  // others use it at the same time
  if (has_bias) {
    TRIREME_CUDA(cublasLtMatmulDescSetAttribute(&description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias)));
  }
  const float alpha = 1, beta = adds ? 1 : 0;
  TRIREME_CUDA(cublasLtMatmul(cublas(), &description, &alpha, b, product.first.handle, a, product.second.handle, &beta,
                              adds ? addend : c, product.result.handle, c, product.result.handle, &product.algorithm,
                              workspace(state), static_cast<std::size_t>(kWorkspaceBytes), state.stream));
}

}  // namespace

const GemmTable kGemmTable{.f32 = gemm<float, float>,
                           .f64 = nullptr,
                           .bf16 = gemm<bfloat16, bfloat16>,
                           .f16 = gemm<float16, float16>,
                           .bf16_unrounded = gemm<bfloat16, float>,
                           .f16_unrounded = gemm<float16, float>,
                           .release_memory = [] {},
                           .set_num_threads = [](int) {}};

}  // namespace trireme::kernels::cuda
