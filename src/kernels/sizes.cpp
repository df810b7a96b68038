// Workspace sizes and the RoPE table.
#include <cmath>

#include "kernels/cpu/attention_workspace.h"
#include "kernels/kernels.h"

namespace trireme::kernels {

std::int64_t attention_workspace(DType dtype, std::int64_t positions, std::int64_t D, int threads) {
  return AttentionWorkspace(positions, D, size_of(dtype)).bytes * threads;
}

std::int64_t embedding_workspace(std::int64_t N, std::int64_t V, std::int64_t /*C*/) {
  return (V + 2 + N) * static_cast<std::int64_t>(sizeof(std::int32_t));
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
