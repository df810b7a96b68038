// Output projection and softmax cross-entropy, forward and backward in one, a chunk of rows at a time, so that the
// logits of a whole micro-batch never exist.
#pragma once
#include "chain/unit.h"
#include "kernels/products.h"
#include "layers/memory.h"

namespace trireme {

struct LossHeadShape {
  std::int64_t N = 1, C = 1;
  std::int64_t vocabulary = 1;  // V: columns that count
  std::int64_t rows = 1;        // of the weight: V and padding
  std::int64_t chunk_rows = 1;  // of logits that exist at once
  double soft_cap = 0;          // logits become cap * tanh(logit / cap); 0: they stay
  bool float_gradient = false;  // of the weight
};

struct LossHeadWorkspace {
  Tensor logits;  // [chunk_rows, rows]
  // [rows, C] in fp32, only for 16-bit gradients in several chunks: the chunks' weight gradients add up there and are
  // rounded once.
  Tensor dweight;
};
LossHeadWorkspace place_loss_head(MemoryLayout& memory, const LossHeadShape& shape, DType dtype);
std::int64_t loss_head_scratch_bytes(const LossHeadShape& shape, DType dtype, int threads);  // of the matrix products

std::vector<kernels::Product> loss_head_products(const LossHeadShape& shape, DType dtype);  // forward and backward

// *sum: of the losses over rows with a label (>= 0, below V). hidden [N, C].
void loss_head_forward(const LossHeadShape& shape, const Tensor& hidden, const Tensor& weight,
                       const std::int32_t* labels, double* sum, const LossHeadWorkspace& workspace);
// The same with gradients, times grad_scale: dhidden [N, C] is overwritten.
void loss_head_backward(const LossHeadShape& shape, const Tensor& hidden, const Tensor& weight,
                        const std::int32_t* labels, double grad_scale, const Tensor& dhidden,
                        const GradientPlace& dweight, double* sum, const LossHeadWorkspace& workspace);

}  // namespace trireme
