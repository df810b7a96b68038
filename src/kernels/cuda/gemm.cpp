// Matrix products by cuBLASLt.
#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <memory>
#include <mutex>

#include "base/error.h"
#include "kernels/cuda/state.h"
#include "kernels/cuda/tables.h"
#include "kernels/level.h"
#include "kernels/products.h"

namespace trireme::kernels::cuda {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr int kWays = 8;  // of a product that are tried: cuBLAS names no more

cudaDataType_t type_of(DType dtype) {
  return dtype == DType::bf16 ? CUDA_R_16BF : dtype == DType::f16 ? CUDA_R_16F : CUDA_R_32F;
}

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
  std::array<cublasLtMatmulHeuristicResult_t, kWays> ways{};  // the advised one first
  int count = 0, choice = 0;

  explicit Ready(const Product& p)
      : first(type_of(p.operands), p.b_transposed ? p.n : p.k, p.b_transposed ? p.k : p.n, p.ldb),
        second(type_of(p.operands), p.a_transposed ? p.k : p.m, p.a_transposed ? p.m : p.k, p.lda),
        result(type_of(p.result), p.m, p.n, p.ldc) {
    description.set(CUBLASLT_MATMUL_DESC_TRANSA, p.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    description.set(CUBLASLT_MATMUL_DESC_TRANSB, p.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (p.has_bias) description.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    const Preference preference;
    TRIREME_CUDA(cublasLtMatmulAlgoGetHeuristic(cublas(), description.handle, first.handle, second.handle,
                                                result.handle, result.handle, preference.handle, kWays, ways.data(),
                                                &count));
    TRIREME_CHECK(count > 0, "cuBLAS knows no way to compute a product");
  }

  // way: below count. addend: null, or what the product is added to.
  cublasStatus_t compute(int way, const void* a, const void* b, void* c, const void* addend, const void* bias) const {
    StreamState& state = current();
    cublasLtMatmulDescOpaque_t own = *description.handle;  // others use it at the same time
    if (bias != nullptr) {
      TRIREME_CUDA(cublasLtMatmulDescSetAttribute(&own, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias)));
    }
    const float alpha = 1, beta = addend != nullptr ? 1 : 0;
    return cublasLtMatmul(cublas(), &own, &alpha, b, first.handle, a, second.handle, &beta,
                          addend != nullptr ? addend : c, result.handle, c, result.handle, &ways[way].algo,
                          workspace(state), static_cast<std::size_t>(kWorkspaceBytes), state.stream);
  }
};

// Kept for the life of the process: a training run has a few dozen.
struct Products {
  std::mutex mutex;
  std::map<Product, std::shared_ptr<const Ready>> ready;
  ProductChoices choices;
};
Products& products() {
  static Products all;
  return all;
}

std::shared_ptr<const Ready> ready(const Product& product) {
  Products& all = products();
  const std::lock_guard lock(all.mutex);
  std::shared_ptr<const Ready>& kept = all.ready[product];
  if (kept == nullptr) {
    auto made = std::make_shared<Ready>(product);
    const auto chosen = all.choices.find(product);
    if (chosen != all.choices.end() && chosen->second < made->count) made->choice = chosen->second;
    kept = std::move(made);
  }
  return kept;
}

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
  if (k == 0) return sum_of_nothing(m, n, c, ldc, addend, bias);
  const auto product =
      ready({dtype_of<T>, dtype_of<C>, a_transposed, b_transposed, bias != nullptr, m, n, k, lda, ldb, ldc});
  check(product->compute(product->choice, a, b, c, addend, bias), "cublasLtMatmul");
}

// An array of rows [rows, stride] of random numbers: products of zeros take less power, and so less time.
class Operand {
 public:
  Operand(DType dtype, std::int64_t rows, std::int64_t stride) : data_(allocate(rows * stride * size_of(dtype))) {
    fill_normal_rows({.rows = rows, .columns = stride, .pitch = stride, .stride = stride}, dtype, data_);
  }
  Operand(const Operand&) = delete;
  Operand& operator=(const Operand&) = delete;
  ~Operand() { cuda::free(data_); }
  std::byte* data() const { return data_; }

 private:
  std::byte* data_;
};

// Seconds that `runs` of a product take, in one way; infinity where that way fails. Of 16-bit operands, what is not
// rounded is added to a sum.
double time_way(const Ready& product, int way, int runs, const Operand& a, const Operand& b, const Operand& c,
                const void* bias, bool is_sum) {
  struct Point {
    cudaEvent_t event = nullptr;
    Point() { TRIREME_CUDA(cudaEventCreate(&event)); }
    ~Point() { cudaEventDestroy(event); }
  } begin, end;
  TRIREME_CUDA(cudaEventRecord(begin.event, current().stream));
  const void* sum = is_sum ? c.data() : nullptr;
  for (int run = 0; run < runs; ++run) {
    if (product.compute(way, a.data(), b.data(), c.data(), sum, bias) != CUBLAS_STATUS_SUCCESS) return kNever;
  }
  TRIREME_CUDA(cudaEventRecord(end.event, current().stream));
  TRIREME_CUDA(cudaEventSynchronize(end.event));
  float milliseconds = 0;
  TRIREME_CUDA(cudaEventElapsedTime(&milliseconds, begin.event, end.event));
  return milliseconds * 1e-3;
}

}  // namespace

std::string product_library() {
  const StreamState& state = current();
  cudaDeviceProp facts{};
  TRIREME_CUDA(cudaGetDeviceProperties(&facts, state.device));
  return "cuBLAS " + std::to_string(cublasLtGetVersion()) + ", " + facts.name + " of " +
         std::to_string(facts.multiProcessorCount) + " multiprocessors";
}

int measure_product(const Product& p) {
  constexpr int kRounds = 3;
  constexpr double kRoundSeconds = 1e-3, kFarBehind = 1.15, kFasterBy = 1.02;
  const Ready product(p);
  const Operand a(p.operands, p.a_transposed ? p.k : p.m, p.lda), b(p.operands, p.b_transposed ? p.n : p.k, p.ldb);
  const Operand c(p.result, p.m, p.ldc), bias(p.result, 1, p.n);
  const void* added = p.has_bias ? bias.data() : nullptr;
  const bool is_sum = p.operands != p.result;
  const auto time = [&](int way, int runs) { return time_way(product, way, runs, a, b, c, added, is_sum) / runs; };
  std::array<double, kWays> best{};
  for (int way = 0; way < product.count; ++way) {
    time(way, 1);  // loads its code
    best[way] = time(way, 2);
  }
  for (int round = 0; round < kRounds; ++round) {
    const double least = *std::min_element(best.begin(), best.begin() + product.count);
    const int runs = static_cast<int>(std::clamp(kRoundSeconds / least, 2.0, 50.0));
    for (int way = 0; way < product.count; ++way) {
      if (best[way] <= kFarBehind * least || way == 0) best[way] = std::min(best[way], time(way, runs));
    }
  }
  const auto fastest = std::min_element(best.begin(), best.begin() + product.count);
  return *fastest * kFasterBy < best[0] ? static_cast<int>(fastest - best.begin()) : 0;
}

void choose_products(const ProductChoices& choices) {
  Products& all = products();
  const std::lock_guard lock(all.mutex);
  all.choices = choices;
  all.ready.clear();
}

const GemmTable kGemmTable{.f32 = gemm<float, float>,
                           .f64 = nullptr,
                           .bf16 = gemm<bfloat16, bfloat16>,
                           .f16 = gemm<float16, float16>,
                           .bf16_unrounded = gemm<bfloat16, float>,
                           .f16_unrounded = gemm<float16, float>,
                           .release_memory = [] {},
                           .set_num_threads = [](int) {}};

}  // namespace trireme::kernels::cuda
