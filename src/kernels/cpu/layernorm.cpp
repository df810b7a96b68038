#include "kernels/cpu/column_sums.h"
#include "kernels/level.h"

namespace trireme::kernels::TRIREME_LEVEL {
namespace {

// The lanes beyond a row's end are zero in x, but not in x - mean.
template <class S>
TRIREME_INLINE Vector<S> only(Vector<S> x, AllLanes) {
  return x;
}
template <class S>
TRIREME_INLINE Vector<S> only(Vector<S> x, SomeLanes lanes) {
  S lane[Vector<S>::kLanes];
  store(lane, x);
  return load(static_cast<const S*>(lane), lanes);
}

template <class S>
struct Moments {
  S mean, rstd;
};

// Two passes: the variance of x - mean does not cancel.
template <class T>
TRIREME_INLINE Moments<Acc<T>> moments_of(int64_t C, const T* x, double eps) {
  constexpr int kLanes = kLanesOf<T>;
  VectorOf<T> sum = {}, squares = {};
  for_each_vector<kLanes>(C, [&](int64_t c, auto lanes) { sum = sum + load(x + c, lanes); });
  const Acc<T> mean = sum_of_lanes(sum) / static_cast<Acc<T>>(C);
  const auto means = splat(mean);
  for_each_vector<kLanes>(C, [&](int64_t c, auto lanes) {
    const auto centred = only(load(x + c, lanes) - means, lanes);
    squares = multiply_add(centred, centred, squares);
  });
  const Acc<T> variance = sum_of_lanes(squares) / static_cast<Acc<T>>(C);
  return {mean, 1 / static_cast<Acc<T>>(::sqrt(variance + eps))};
}

// dx = rstd * (g - mean(g) - normed * mean(g * normed)), g = dy * w, normed = (x - mean) * rstd.
template <class T>
TRIREME_INLINE void input_gradient(int64_t C, const T* x, const T* w, const T* b, Moments<Acc<T>> m, const T* dy,
                                   const T* addend, T* dx, T* y) {
  constexpr int kLanes = kLanesOf<T>;
  const auto means = splat(m.mean), scales = splat(m.rstd);
  VectorOf<T> sum = {}, products = {};
  for_each_vector<kLanes>(C, [&](int64_t c, auto lanes) {
    const auto gradient = load(dy + c, lanes) * load(w + c, lanes);
    sum = sum + gradient;
    products = multiply_add(gradient, (load(x + c, lanes) - means) * scales, products);
  });
  const auto shift = splat(-sum_of_lanes(sum) / static_cast<Acc<T>>(C));
  const auto slope = splat(-sum_of_lanes(products) / static_cast<Acc<T>>(C));
  for_each_vector<kLanes>(C, [&](int64_t c, auto lanes) {
    const auto normed = (load(x + c, lanes) - means) * scales;
    auto gradient = (multiply_add(normed, slope, load(dy + c, lanes) * load(w + c, lanes)) + shift) * scales;
    if (addend != nullptr) gradient = gradient + load(addend + c, lanes);
    if (y != nullptr) store(y + c, multiply_add(normed, load(w + c, lanes), load(b + c, lanes)), lanes);
    store(dx + c, gradient, lanes);
  });
}

}  // namespace

template <class T>
void layernorm_forward(int64_t N, int64_t C, const T* x, const T* w, const T* b, double eps, T* y, Acc<T>* mean,
                       Acc<T>* rstd) {
  parallel_ranges(N, N * C, [=](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const T* row = x + n * C;
      const Moments<Acc<T>> m = moments_of(C, row, eps);
      mean[n] = m.mean;
      rstd[n] = m.rstd;
      const auto means = splat(m.mean), scales = splat(m.rstd);
      for_each_vector<kLanesOf<T>>(C, [=](int64_t c, auto lanes) {
        const auto normed = (load(row + c, lanes) - means) * scales;
        store(y + n * C + c, multiply_add(normed, load(w + c, lanes), load(b + c, lanes)), lanes);
      });
    }
  });
}

template <class T>
void layernorm_backward(int64_t N, int64_t C, const T* x, const T* w, const T* b, const Acc<T>* mean,
                        const Acc<T>* rstd, const T* dy, const T* addend, T* dx, T* dw, bool add_dw, T* db, bool add_db,
                        T* y) {
  if (dw != nullptr) {
    sum_columns(N, C, dw, add_dw, [=](VectorOf<T> sum, int64_t n, int64_t c, auto lanes) {
      const auto normed = (load(x + n * C + c, lanes) - splat(mean[n])) * splat(rstd[n]);
      return multiply_add(load(dy + n * C + c, lanes), normed, sum);
    });
  }
  if (db != nullptr) bias_backward(N, C, dy, db, add_db);
  parallel_ranges(N, N * C, [=](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const int64_t at = n * C;
      input_gradient(C, x + at, w, b, Moments<Acc<T>>{mean[n], rstd[n]}, dy + at,
                     addend == nullptr ? nullptr : addend + at, dx + at, y == nullptr ? nullptr : y + at);
    }
  });
}

#define TRIREME_INSTANCES(T)                                                                                     \
  template void layernorm_forward(int64_t, int64_t, const T*, const T*, const T*, double, T*, Acc<T>*, Acc<T>*); \
  template void layernorm_backward(int64_t, int64_t, const T*, const T*, const T*, const Acc<T>*, const Acc<T>*, \
                                   const T*, const T*, T*, T*, bool, T*, bool, T*);
TRIREME_INSTANCES(float)
TRIREME_INSTANCES(bfloat16)
TRIREME_INSTANCES(float16)
TRIREME_INSTANCES(double)

}  // namespace trireme::kernels::TRIREME_LEVEL
