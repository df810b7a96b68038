// RMSNorm, and LayerNorm (centred), over the last dimension. x, y [N, C], weight and bias [C].
#pragma once
#include "chain/unit.h"
#include "layers/memory.h"

namespace trireme {

struct Norm {
  double eps = 1e-5;
  bool centred = false;   // LayerNorm, which has a bias too
  bool one_plus = false;  // multiplies by 1 + weight; not centred
};

// What the backward takes from the forward, or computes again by it.
struct NormStatistics {
  Tensor rstd, mean;  // one a run; mean only where centred
};
NormStatistics place_norm_statistics(MemoryLayout& memory, const Norm& norm, std::int64_t runs, DType dtype);

struct NormWeights {
  Tensor weight, bias;
};
struct NormGradients {
  GradientPlace weight, bias;
};

void norm_forward(const Norm& norm, const Tensor& x, const NormWeights& w, const Tensor& y, const NormStatistics& kept);
// dx is that of the norm, plus addend where it has data; y, where it has data, is the forward's once more. dx may be
// addend or dy, y may be dy.
void norm_backward(const Norm& norm, const Tensor& x, const NormWeights& w, const NormStatistics& kept,
                   const Tensor& dy, const Tensor& addend, const Tensor& dx, const NormGradients& gradients,
                   const Tensor& y = {});

// RMSNorm of each of `count` heads of D elements from head `first` on, in every row of x [N, row_stride]; y lies as x
// does, and its other heads stay. weight [D].
struct Heads {
  std::int64_t first = 0, count = 1, D = 1;
};
void heads_norm_forward(const Norm& norm, const Heads& heads, const Tensor& x, const Tensor& weight, const Tensor& y,
                        const Tensor& rstd);
// In place: dy becomes dx.
void heads_norm_backward(const Norm& norm, const Heads& heads, const Tensor& x, const Tensor& weight,
                         const Tensor& rstd, const Tensor& dy, const GradientPlace& gradient);

}  // namespace trireme
