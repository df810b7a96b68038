#include "kernels/cpu/level.h"
#include "kernels/cpu/vector.h"

namespace trireme::kernels::TRIREME_LEVEL {

template <class T>
void rmsnorm_forward(int64_t N, int64_t C, const T* x, const T* w, double eps, T* y, Acc<T>* rstd) {
  constexpr int kLanes = kLanesOf<T>;
  parallel_ranges(N, N * C, [=](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const T* row = x + n * C;
      VectorOf<T> squares = {};
      for_each_vector<kLanes>(C, [&](int64_t c, auto lanes) {
        const auto value = load(row + c, lanes);
        squares = multiply_add(value, value, squares);
      });
      const Acc<T> mean = sum_of_lanes(squares) / static_cast<Acc<T>>(C);
      const Acc<T> scale = 1 / static_cast<Acc<T>>(::sqrt(mean + eps));
      rstd[n] = scale;
      const auto scales = splat(scale);
      for_each_vector<kLanes>(C, [&](int64_t c, auto lanes) {
        store(y + n * C + c, load(row + c, lanes) * scales * load(w + c, lanes), lanes);
      });
    }
  });
}

namespace {

template <class T>
TRIREME_INLINE void input_gradient(int64_t C, const T* x, const T* w, Acc<T> rstd, const T* dy, T* dx, bool add) {
  constexpr int kLanes = kLanesOf<T>;
  VectorOf<T> products = {};
  for_each_vector<kLanes>(C, [&](int64_t c, auto lanes) {
    products = multiply_add(load(dy + c, lanes) * load(w + c, lanes), load(x + c, lanes), products);
  });
  const auto scale = splat(rstd);
  const auto slope = splat(-rstd * rstd * rstd * sum_of_lanes(products) / static_cast<Acc<T>>(C));
  for_each_vector<kLanes>(C, [&](int64_t c, auto lanes) {
    auto gradient = load(dy + c, lanes) * load(w + c, lanes) * scale;
    gradient = multiply_add(load(x + c, lanes), slope, gradient);
    if (add) gradient = gradient + load(dx + c, lanes);
    store(dx + c, gradient, lanes);
  });
}

// Columns [c, c + lanes): rows add up in blocks of 32, so that the rounding error does not grow with N.
template <class T, class Lanes>
TRIREME_INLINE void weight_gradient(int64_t N, int64_t C, const T* x, const Acc<T>* rstd, const T* dy, T* dw, bool add,
                                    int64_t c, Lanes lanes) {
  constexpr int64_t kRows = 32;
  VectorOf<T> total = {};
  for (int64_t block = 0; block < N; block += kRows) {
    VectorOf<T> part = {};
    for (int64_t n = block; n < smaller_of(block + kRows, N); ++n) {
      part = multiply_add(load(dy + n * C + c, lanes) * splat(rstd[n]), load(x + n * C + c, lanes), part);
    }
    total = total + part;
  }
  if (add) total = total + load(dw + c, lanes);
  store(dw + c, total, lanes);
}

}  // namespace

template <class T>
void rmsnorm_backward(int64_t N, int64_t C, const T* x, const T* w, const Acc<T>* rstd, const T* dy, T* dx, bool add_dx,
                      T* dw, bool add_dw) {
  constexpr int64_t kLanes = kLanesOf<T>;
  // A pass over the columns of its own: no scratch, and the same sum for any number of threads.
  parallel_ranges((C + kLanes - 1) / kLanes, N * C, [=](int64_t begin, int64_t end) {
    const int64_t first = begin * kLanes;
    for_each_vector<kLanes>(smaller_of(end * kLanes, C) - first, [=](int64_t c, auto lanes) {
      weight_gradient(N, C, x, rstd, dy, dw, add_dw, first + c, lanes);
    });
  });
  parallel_ranges(N, N * C, [=](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      input_gradient(C, x + n * C, w, rstd[n], dy + n * C, dx + n * C, add_dx);
    }
  });
}

#define TRIREME_INSTANCES(T)                                                                \
  template void rmsnorm_forward(int64_t, int64_t, const T*, const T*, double, T*, Acc<T>*); \
  template void rmsnorm_backward(int64_t, int64_t, const T*, const T*, const Acc<T>*, const T*, T*, bool, T*, bool);
TRIREME_INSTANCES(float)
TRIREME_INSTANCES(bfloat16)
TRIREME_INSTANCES(double)

}  // namespace trireme::kernels::TRIREME_LEVEL
