// y = x @ w^T (+ bias). x [N, I], w [O, I] or, input-major, [I, O] (GPT-2's files have it so), bias [O], y [N, O].
#pragma once
#include "chain/unit.h"

namespace trireme {

struct LinearWeights {
  Tensor weight;
  Tensor bias;  // no data: there is none
  bool input_major = false;
};
struct LinearGradients {
  GradientPlace weight, bias;
};

// y is overwritten, or added to (rounded once).
void linear_forward(const Tensor& x, const LinearWeights& w, const Tensor& y, bool add = false);
void linear_backward_input(const Tensor& dy, const LinearWeights& w, const Tensor& dx);
void linear_backward_weight(const Tensor& dy, const Tensor& x, const LinearWeights& w, const LinearGradients& dw);

// The same for w [O, I] without a bias.
void linear_forward(const Tensor& x, const Tensor& w, const Tensor& y, bool add = false);
void linear_backward_input(const Tensor& dy, const Tensor& w, const Tensor& dx);
void linear_backward_weight(const Tensor& dy, const Tensor& x, const GradientPlace& dw);

}  // namespace trireme
