// The gated feed-forward network: y += (silu(x @ gate^T) * (x @ up^T)) @ down^T.
#pragma once
#include "chain/unit.h"

namespace trireme {

struct MlpWeights {
  Tensor gate_up;  // [2F, C]: gate's rows, then up's
  Tensor down;     // [C, F]
};

// x [N, C]; gate_up [N, 2F] is kept for the backward, activated [N, F] is workspace; y [N, C] is added to.
void mlp_forward(const Tensor& x, const MlpWeights& w, const Tensor& gate_up, const Tensor& activated, const Tensor& y);
// dx [N, C] is overwritten. activated [N, F] and dgate_up [N, 2F] are workspace.
void mlp_backward(const Tensor& x, const MlpWeights& w, const Tensor& gate_up, const Tensor& dy,
                  const Tensor& activated, const Tensor& dgate_up, const Tensor& dx, const GradientPlace& dw_gate_up,
                  const GradientPlace& dw_down);

}  // namespace trireme
