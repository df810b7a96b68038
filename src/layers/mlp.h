// The feed-forward network: activation(x @ up^T) @ down^T or, gated, (activation(x @ gate^T) * (x @ up^T)) @ down^T.
#pragma once
#include "kernels/activation.h"
#include "layers/linear.h"

namespace trireme {

struct MlpKind {
  Activation activation = Activation::silu;
  bool gated = true;
  std::int64_t up_width(std::int64_t F) const { return gated ? 2 * F : F; }
};

struct MlpWeights {
  LinearWeights up;    // [F, C]; gated [2F, C]: gate's rows, then up's
  LinearWeights down;  // [C, F]
};

// x [N, C]; wide [N, up_width(F)] is kept for the backward, activated [N, F] is workspace; y [N, C], to which addend is
// added where it has data.
void mlp_forward(const MlpKind& kind, const Tensor& x, const MlpWeights& w, const Tensor& wide, const Tensor& activated,
                 const Tensor& y, const Tensor& addend = {});
// dx [N, C] and dwide [N, up_width(F)] are overwritten; activated [N, F] is workspace. What is left is the gradient of
// up, linear_backward_weight(dwide, x, ...): x may be made behind this.
void mlp_backward(const MlpKind& kind, const MlpWeights& w, const Tensor& wide, const Tensor& dy,
                  const Tensor& activated, const Tensor& dwide, const Tensor& dx, const LinearGradients& ddown);

}  // namespace trireme
