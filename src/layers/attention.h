// Causal grouped-query attention over rotated queries and keys, inside documents and windows.
#pragma once
#include "chain/unit.h"
#include "kernels/kernels.h"

namespace trireme {

using kernels::AttentionShape;

// qkv [B*T, (H+2K)*D], out [B*T, H*D], lse [B, H, T] in the accumulator's type, starts as in Batch. Both take workspace
// of attention_workspace_bytes for at least as many threads as the calling thread has.
void attention_forward(const AttentionShape& shape, const kernels::Dropout& dropout, const Tensor& qkv,
                       const std::int32_t* starts, const Tensor& out, const Tensor& lse, const Tensor& workspace);
// Without a backward to follow, for rows that go on: key_values[b] has the rows [K*D | K*D] of sequence b's past[b]
// earlier positions, and gets those of these T ones.
void attention_cached(const AttentionShape& shape, const Tensor& qkv, std::byte* const* key_values,
                      const std::int32_t* past, const std::int32_t* starts, const Tensor& out, const Tensor& lse,
                      const Tensor& workspace);
void attention_backward(const AttentionShape& shape, const kernels::Dropout& dropout, const Tensor& qkv,
                        const std::int32_t* starts, const Tensor& out, const Tensor& lse, const Tensor& dout,
                        const Tensor& dqkv, const Tensor& workspace);
std::int64_t attention_workspace_bytes(const AttentionShape& shape, DType dtype, Phase phase, int threads);
// What the matrix products take besides.
std::int64_t attention_scratch_bytes(const AttentionShape& shape, DType dtype, int threads);

// The first position that each may see when it sees `window` positions at most, itself among them. out [B, T]
void starts_in_window(const Batch& batch, std::int64_t window, std::int32_t* out);

}  // namespace trireme
