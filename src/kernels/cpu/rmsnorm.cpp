#include "kernels/cpu/column_sums.h"
#include "kernels/level.h"

namespace trireme::kernels::TRIREME_LEVEL {
namespace {

// The weight as it multiplies.
template <bool kOnePlus>
struct Weight {
  template <class T, class Lanes>
  static TRIREME_INLINE VectorOf<T> of(const T* w, Lanes lanes) {
    if constexpr (kOnePlus) return load(w, lanes) + splat(Acc<T>{1});
    return load(w, lanes);
  }
};

// step(Weight<...>{}).
template <class Step>
TRIREME_INLINE void with_weight(bool one_plus, Step step) {
  if (one_plus) return step(Weight<true>{});
  step(Weight<false>{});
}

// step(element offset of the run, number of the run) for the runs of rows [begin, end).
template <class Step>
TRIREME_INLINE void for_each_run(const NormShape& s, int64_t begin, int64_t end, Step step) {
  for (int64_t n = begin; n < end; ++n) {
    for (int64_t h = 0; h < s.heads; ++h) step(n * s.row_stride + h * s.C, n * s.heads + h);
  }
}

template <class W, class T>
TRIREME_INLINE Acc<T> normalize(int64_t C, const T* x, const T* w, double eps, T* y) {
  constexpr int kLanes = kLanesOf<T>;
  VectorOf<T> squares = {};
  for_each_vector<kLanes>(C, [&](int64_t c, auto lanes) {
    const auto value = load(x + c, lanes);
    squares = multiply_add(value, value, squares);
  });
  const Acc<T> mean = sum_of_lanes(squares) / static_cast<Acc<T>>(C);
  const Acc<T> scale = 1 / static_cast<Acc<T>>(::sqrt(mean + eps));
  const auto scales = splat(scale);
  for_each_vector<kLanes>(
      C, [&](int64_t c, auto lanes) { store(y + c, load(x + c, lanes) * scales * W::of(w + c, lanes), lanes); });
  return scale;
}

template <class W, class T>
TRIREME_INLINE void input_gradient(int64_t C, const T* x, const T* w, Acc<T> rstd, const T* dy, const T* addend, T* dx,
                                   T* y) {
  constexpr int kLanes = kLanesOf<T>;
  VectorOf<T> products = {};
  for_each_vector<kLanes>(C, [&](int64_t c, auto lanes) {
    products = multiply_add(load(dy + c, lanes) * W::of(w + c, lanes), load(x + c, lanes), products);
  });
  const auto scale = splat(rstd);
  const auto slope = splat(-rstd * rstd * rstd * sum_of_lanes(products) / static_cast<Acc<T>>(C));
  for_each_vector<kLanes>(C, [&](int64_t c, auto lanes) {
    auto gradient = load(dy + c, lanes) * W::of(w + c, lanes) * scale;
    gradient = multiply_add(load(x + c, lanes), slope, gradient);
    if (addend != nullptr) gradient = gradient + load(addend + c, lanes);
    if (y != nullptr) store(y + c, load(x + c, lanes) * scale * W::of(w + c, lanes), lanes);
    store(dx + c, gradient, lanes);
  });
}

// offset(run): where a run's elements begin.
template <class T, class Offset>
TRIREME_INLINE void weight_gradient(const NormShape& s, const T* x, const Acc<T>* rstd, const T* dy, T* dw, bool add,
                                    Offset offset) {
  sum_columns(s.N * s.heads, s.C, dw, add, [=](VectorOf<T> sum, int64_t run, int64_t c, auto lanes) {
    const int64_t at = offset(run) + c;
    return multiply_add(load(dy + at, lanes) * splat(rstd[run]), load(x + at, lanes), sum);
  });
}

template <class T>
T* offset_of(T* array, int64_t at) {
  return array == nullptr ? nullptr : array + at;
}

}  // namespace

template <class T>
void rmsnorm_forward(const NormShape& shape, const T* x, const T* w, double eps, T* y, Acc<T>* rstd) {
  const NormShape s = shape;
  with_weight(s.one_plus, [=]<class W>(W) {
    parallel_ranges(s.N, s.N * s.heads * s.C, [=](int64_t begin, int64_t end) {
      for_each_run(s, begin, end,
                   [=](int64_t at, int64_t run) { rstd[run] = normalize<W>(s.C, x + at, w, eps, y + at); });
    });
  });
}

template <class T>
void rmsnorm_backward(const NormShape& shape, const T* x, const T* w, const Acc<T>* rstd, const T* dy, const T* addend,
                      T* dx, T* dw, bool add_dw, T* y) {
  const NormShape s = shape;
  if (dw != nullptr && s.heads == 1) {
    weight_gradient(s, x, rstd, dy, dw, add_dw, [=](int64_t run) { return run * s.row_stride; });
  } else if (dw != nullptr) {
    weight_gradient(s, x, rstd, dy, dw, add_dw,
                    [=](int64_t run) { return run / s.heads * s.row_stride + run % s.heads * s.C; });
  }
  with_weight(s.one_plus, [=]<class W>(W) {
    parallel_ranges(s.N, s.N * s.heads * s.C, [=](int64_t begin, int64_t end) {
      for_each_run(s, begin, end, [=](int64_t at, int64_t run) {
        input_gradient<W>(s.C, x + at, w, rstd[run], dy + at, offset_of(addend, at), dx + at, offset_of(y, at));
      });
    });
  });
}

#define TRIREME_INSTANCES(T)                                                                                      \
  template void rmsnorm_forward(const NormShape&, const T*, const T*, double, T*, Acc<T>*);                       \
  template void rmsnorm_backward(const NormShape&, const T*, const T*, const Acc<T>*, const T*, const T*, T*, T*, \
                                 bool, T*);
TRIREME_INSTANCES(float)
TRIREME_INSTANCES(bfloat16)
TRIREME_INSTANCES(float16)
TRIREME_INSTANCES(double)

}  // namespace trireme::kernels::TRIREME_LEVEL
