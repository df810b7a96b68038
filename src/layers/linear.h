// y = x @ w^T (+ bias). x [N, I], w [O, I] or, input-major, [I, O] (GPT-2's files have it so), bias [O], y [N, O].
#pragma once
#include <array>

#include "chain/unit.h"
#include "kernels/products.h"

namespace trireme {

struct LinearWeights {
  Tensor weight;
  Tensor bias;  // no data: there is none
  bool input_major = false;
};
struct LinearGradients {
  GradientPlace weight, bias;
};

// addend, where it has data, is added (rounded once); it lies as y does, and may be y.
void linear_forward(const Tensor& x, const LinearWeights& w, const Tensor& y, const Tensor& addend = {});
void linear_backward_input(const Tensor& dy, const LinearWeights& w, const Tensor& dx);
void linear_backward_weight(const Tensor& dy, const Tensor& x, const LinearWeights& w, const LinearGradients& dw);

// What the products of such a layer, forward and backward, take beside their operands at most. gradient: the type of
// the weight's.
std::int64_t linear_scratch_bytes(DType dtype, DType gradient, std::int64_t N, std::int64_t I, std::int64_t O,
                                  int threads);

// These products: of the forward, of the input's gradient, of the weight's.
std::array<kernels::Product, 3> linear_products(DType dtype, DType gradient, std::int64_t N, std::int64_t I,
                                                std::int64_t O, bool input_major, bool has_bias);

// The same for w [O, I] without a bias.
void linear_forward(const Tensor& x, const Tensor& w, const Tensor& y, const Tensor& addend = {});
void linear_backward_input(const Tensor& dy, const Tensor& w, const Tensor& dx);
void linear_backward_weight(const Tensor& dy, const Tensor& x, const GradientPlace& dw);

}  // namespace trireme
