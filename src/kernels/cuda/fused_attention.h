// cuDNN's fused attention: causal over whole sequences, in 16 bits. What it does not know the kernels of attention.cu
// do.
#pragma once
#include "kernels/kernels.h"

namespace trireme::kernels::cuda {

// starts == nullptr: from the first position on. The same answer for forward and backward of a shape: lse is passed on.
bool is_fused(const AttentionShape& shape, DType dtype, const Dropout& dropout, const std::int32_t* starts);

// workspace: fused_attention_workspace bytes, which are none where no arguments of that shape are fused.
void fused_attention_forward(const AttentionShape& shape, DType dtype, const void* qkv, void* out, float* lse,
                             void* workspace);
// Bit-equal from run to run.
void fused_attention_backward(const AttentionShape& shape, DType dtype, const void* qkv, const void* out,
                              const float* lse, const void* dout, void* dqkv, void* workspace);
std::int64_t fused_attention_workspace(const AttentionShape& shape, DType dtype, bool backward);

}  // namespace trireme::kernels::cuda
