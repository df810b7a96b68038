#include "layers/norm.h"

#include "kernels/kernels.h"
#include "layout/dispatch.h"

namespace trireme {
namespace {

kernels::NormShape rows_of(const Norm& norm, const Tensor& x) {
  const std::int64_t C = x.sizes[1];
  return {.N = x.sizes[0], .C = C, .heads = 1, .row_stride = C, .one_plus = norm.one_plus};
}

kernels::NormShape rows_of(const Norm& norm, const Heads& heads, const Tensor& x) {
  return {.N = x.sizes[0], .C = heads.D, .heads = heads.count, .row_stride = x.sizes[1], .one_plus = norm.one_plus};
}

template <class T>
T* first_of(const Heads& heads, const Tensor& x) {
  return x.as<T>() + heads.first * heads.D;
}

template <class T>
T* wanted(const GradientPlace& gradient) {
  return gradient.is_wanted() ? gradient.tensor.as<T>() : nullptr;
}

}  // namespace

NormStatistics place_norm_statistics(MemoryLayout& memory, const Norm& norm, std::int64_t runs, DType dtype) {
  NormStatistics kept;
  kept.rstd = memory.place(accumulator_of(dtype), {runs});
  if (norm.centred) kept.mean = memory.place(accumulator_of(dtype), {runs});
  return kept;
}

void norm_forward(const Norm& norm, const Tensor& x, const NormWeights& w, const Tensor& y,
                  const NormStatistics& kept) {
  dispatch(x.dtype, [&]<class T>(T) {
    using Acc = typename kernels::AccumulatorOf<T>::type;
    const auto& table = kernels::table<T>();
    if (norm.centred) {
      table.layernorm_forward(x.sizes[0], x.sizes[1], x.as<T>(), w.weight.as<T>(), w.bias.as<T>(), norm.eps, y.as<T>(),
                              kept.mean.as<Acc>(), kept.rstd.as<Acc>());
    } else {
      table.rmsnorm_forward(rows_of(norm, x), x.as<T>(), w.weight.as<T>(), norm.eps, y.as<T>(), kept.rstd.as<Acc>());
    }
  });
}

void norm_backward(const Norm& norm, const Tensor& x, const NormWeights& w, const NormStatistics& kept,
                   const Tensor& dy, const Tensor& addend, const Tensor& dx, const NormGradients& g, const Tensor& y) {
  dispatch(x.dtype, [&]<class T>(T) {
    using Acc = typename kernels::AccumulatorOf<T>::type;
    const auto& table = kernels::table<T>();
    if (norm.centred) {
      table.layernorm_backward(x.sizes[0], x.sizes[1], x.as<T>(), w.weight.as<T>(), w.bias.as<T>(), kept.mean.as<Acc>(),
                               kept.rstd.as<Acc>(), dy.as<T>(), addend.as<T>(), dx.as<T>(), wanted<T>(g.weight),
                               g.weight.add, wanted<T>(g.bias), g.bias.add, y.as<T>());
    } else {
      table.rmsnorm_backward(rows_of(norm, x), x.as<T>(), w.weight.as<T>(), kept.rstd.as<Acc>(), dy.as<T>(),
                             addend.as<T>(), dx.as<T>(), wanted<T>(g.weight), g.weight.add, y.as<T>());
    }
  });
}

void heads_norm_forward(const Norm& norm, const Heads& heads, const Tensor& x, const Tensor& weight, const Tensor& y,
                        const Tensor& rstd) {
  dispatch(x.dtype, [&]<class T>(T) {
    using Acc = typename kernels::AccumulatorOf<T>::type;
    kernels::table<T>().rmsnorm_forward(rows_of(norm, heads, x), first_of<T>(heads, x), weight.as<T>(), norm.eps,
                                        first_of<T>(heads, y), rstd.as<Acc>());
  });
}

void heads_norm_backward(const Norm& norm, const Heads& heads, const Tensor& x, const Tensor& weight,
                         const Tensor& rstd, const Tensor& dy, const GradientPlace& gradient) {
  dispatch(x.dtype, [&]<class T>(T) {
    using Acc = typename kernels::AccumulatorOf<T>::type;
    kernels::table<T>().rmsnorm_backward(rows_of(norm, heads, x), first_of<T>(heads, x), weight.as<T>(), rstd.as<Acc>(),
                                         first_of<T>(heads, dy), nullptr, first_of<T>(heads, dy), wanted<T>(gradient),
                                         gradient.add, nullptr);
  });
}

}  // namespace trireme
