// y = x @ w^T, without bias. x [N, I], w [O, I], y [N, O].
#pragma once
#include "chain/unit.h"

namespace trireme {

// y is overwritten, or added to (rounded once).
void linear_forward(const Tensor& x, const Tensor& w, const Tensor& y, bool add = false);
void linear_backward_input(const Tensor& dy, const Tensor& w, const Tensor& dx);
void linear_backward_weight(const Tensor& dy, const Tensor& x, const GradientPlace& dw);

}  // namespace trireme
