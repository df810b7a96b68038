// RMSNorm over the last dimension. x, y [N, C], w [C], rstd [N] in the accumulator's type.
#pragma once
#include "chain/unit.h"

namespace trireme {

void rmsnorm_forward(const Tensor& x, const Tensor& w, double eps, const Tensor& y, const Tensor& rstd);
// dx is overwritten, or added to if add_dx; it may be dy itself when it is overwritten.
void rmsnorm_backward(const Tensor& x, const Tensor& w, const Tensor& rstd, const Tensor& dy, const Tensor& dx,
                      bool add_dx, const GradientPlace& dw);

}  // namespace trireme
