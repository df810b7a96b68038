// The matrix products of libtrireme_torch.so, which gemm.cpp loads for the first of them, and those of devices.
#pragma once
#include "kernels/kernels.h"

namespace trireme::kernels {

// Of the products that gemm.cpp rounds: rows and columns of a tile, and as many of the inner size at a time.
inline constexpr std::int64_t kTile = 256, kTileDepth = 2048;

struct GemmTable {
  template <class T, class C>
  using Gemm = void (*)(bool a_transposed, bool b_transposed, std::int64_t m, std::int64_t n, std::int64_t k,
                        const T* a, std::int64_t lda, const T* b, std::int64_t ldb, C* c, std::int64_t ldc,
                        const C* addend, const C* bias);  // on the CPU: null or c, and null
  Gemm<float, float> f32;
  Gemm<double, double> f64;
  Gemm<bfloat16, bfloat16> bf16;  // null, as f16: gemm.cpp rounds tiles of the unrounded ones
  Gemm<float16, float16> f16;
  Gemm<bfloat16, float> bf16_unrounded;
  Gemm<float16, float> f16_unrounded;
  void (*release_memory)();              // of the CPU's libraries
  void (*set_num_threads)(int threads);  // of the calling thread, OpenMP's and the CPU's libraries' own
};

}  // namespace trireme::kernels
