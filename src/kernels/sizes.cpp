// Workspace sizes and the RoPE table.
#include <algorithm>
#include <cmath>

#include "base/cpu.h"
#include "kernels/cpu/attention_workspace.h"
#include "kernels/cuda/library.h"
#include "kernels/gemm_table.h"
#include "kernels/kernels.h"

namespace trireme::kernels {

std::int64_t attention_workspace(const AttentionShape& shape, DType dtype, bool backward, int threads) {
  if (const CudaLibrary* device = current_device()) return device->attention_workspace(shape, dtype, backward);
  return AttentionWorkspace(shape.positions(), shape.D, size_of(dtype), backward).bytes * threads;
}

std::int64_t embedding_workspace(std::int64_t N, std::int64_t V, std::int64_t /*C*/) {
  return (V + 2 + N) * static_cast<std::int64_t>(sizeof(std::int32_t));
}

namespace {

constexpr std::int64_t kNarrow = 128, kPanel = 384, kLine = 48;  // MKL's

// Of bf16 and fp16 where the CPU has no AVX-512: MKL copies both operands whole, one of them as fp32, and then panels.
// Either copy may come to lie in a block that was made for the larger one.
std::int64_t widened_scratch(std::int64_t m, std::int64_t n, std::int64_t k, int threads) {
  constexpr std::int64_t kFixed = 25288, kLeast = 256;
  const std::int64_t depth = std::clamp(k, kLeast, kPanel);
  return 2 * std::max(2 * n * k, 4 * m * k) + threads * (kFixed + depth * (4 * std::min(m, kPanel) + n));
}

}  // namespace

// MKL copies the whole of one operand, `depth` of the inner size at a time, and a panel of the other, beside a part
// that is always there; narrow fp32 products do without. oneDNN, which computes what is rounded to bf16, blocks for the
// caches; what gemm.cpp rounds is computed in tiles.
std::int64_t product_scratch(DType dtype, bool rounded, std::int64_t m, std::int64_t n, std::int64_t k, int threads) {
  if (current_device() != nullptr) return 0;
  constexpr std::int64_t kFixed = 4205080, kOneDnn = std::int64_t{1} << 20;
  const bool half = size_of(dtype) == 2, is_wide = x86_64_level() >= 4;
  if (half && rounded) {
    if (dtype == DType::bf16 && is_wide) return threads * kOneDnn;
    m = std::min(m, kTile), n = std::min(n, kTile), k = std::min(k, kTileDepth);
  }
  if (half && !is_wide) return widened_scratch(m, n, k, threads);
  if (!half && n <= kNarrow) return 0;
  const std::int64_t depth = k <= kPanel ? std::max(k, kNarrow) : std::min((half ? 2 : 1) * kPanel, (k + 1) / 2);
  const std::int64_t columns = (n + threads - 1) / threads;
  const std::int64_t elements = depth * ((columns + kLine - 1) / kLine * kLine + std::min(m, kPanel));
  return threads * (kFixed + elements * size_of(dtype));
}

void make_rope_table(std::int64_t positions, std::int64_t D, const float* frequencies, double amplitude,
                     float* cos_sin) {
  const std::int64_t half = D / 2;
  for (std::int64_t p = 0; p < positions; ++p) {
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<float>(p) * frequencies[i];
      cos_sin[p * D + i] = static_cast<float>(std::cos(angle) * amplitude);
      cos_sin[p * D + half + i] = static_cast<float>(std::sin(angle) * amplitude);
    }
  }
}

}  // namespace trireme::kernels
