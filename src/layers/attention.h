// Causal grouped-query attention over rotated queries and keys, inside documents.
#pragma once
#include "chain/unit.h"

namespace trireme {

struct AttentionShape {
  std::int64_t B = 1, T = 1, H = 1, K = 1, D = 2;
  std::int64_t qkv_width() const { return (H + 2 * K) * D; }
};

// qkv [B*T, (H+2K)*D], out [B*T, H*D], lse [B, H, T] in the accumulator's type, starts as in Batch. Both take workspace
// of attention_workspace_bytes for at least as many threads as the calling thread has.
void attention_forward(const AttentionShape& shape, const Tensor& qkv, const std::int32_t* starts, const Tensor& out,
                       const Tensor& lse, const Tensor& workspace);
void attention_backward(const AttentionShape& shape, const Tensor& qkv, const std::int32_t* starts, const Tensor& out,
                        const Tensor& lse, const Tensor& dout, const Tensor& dqkv, const Tensor& workspace);
std::int64_t attention_workspace_bytes(const AttentionShape& shape, DType dtype, int threads);

}  // namespace trireme
