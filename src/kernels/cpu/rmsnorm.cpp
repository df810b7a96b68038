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

// The columns of kVectors vectors from c on: rows add up in blocks of 32, so that the rounding error does not grow
// with N. Several vectors at once, because a row's neighbouring cache lines come together.
template <int kVectors, class T, class Lanes>
TRIREME_INLINE void weight_gradient(int64_t N, int64_t C, const T* x, const Acc<T>* rstd, const T* dy, T* dw, bool add,
                                    int64_t c, Lanes lanes) {
  constexpr int64_t kRows = 32, kLanes = kLanesOf<T>;
  VectorOf<T> total[kVectors] = {};
  for (int64_t block = 0; block < N; block += kRows) {
    VectorOf<T> part[kVectors] = {};
    for (int64_t n = block; n < smaller_of(block + kRows, N); ++n) {
      for (int i = 0; i < kVectors; ++i) {
        const int64_t at = n * C + c + i * kLanes;
        part[i] = multiply_add(load(dy + at, lanes) * splat(rstd[n]), load(x + at, lanes), part[i]);
      }
    }
    for (int i = 0; i < kVectors; ++i) total[i] = total[i] + part[i];
  }
  for (int i = 0; i < kVectors; ++i) {
    T* place = dw + c + i * kLanes;
    if (add) total[i] = total[i] + load(place, lanes);
    store(place, total[i], lanes);
  }
}

// The columns [begin, end).
template <class T>
TRIREME_INLINE void weight_gradients(int64_t N, int64_t C, const T* x, const Acc<T>* rstd, const T* dy, T* dw, bool add,
                                     int64_t begin, int64_t end) {
  constexpr int64_t kLanes = kLanesOf<T>;
  int64_t c = begin;
  for (; c + 4 * kLanes <= end; c += 4 * kLanes) weight_gradient<4>(N, C, x, rstd, dy, dw, add, c, AllLanes{});
  for_each_vector<kLanes>(end - c,
                          [=](int64_t i, auto lanes) { weight_gradient<1>(N, C, x, rstd, dy, dw, add, c + i, lanes); });
}

}  // namespace

template <class T>
void rmsnorm_backward(int64_t N, int64_t C, const T* x, const T* w, const Acc<T>* rstd, const T* dy, T* dx, bool add_dx,
                      T* dw, bool add_dw) {
  constexpr int64_t kLanes = kLanesOf<T>;
  // A pass over the columns of its own: no scratch, and the same sum for any number of threads.
  parallel_ranges((C + kLanes - 1) / kLanes, N * C, [=](int64_t begin, int64_t end) {
    weight_gradients(N, C, x, rstd, dy, dw, add_dw, begin * kLanes, smaller_of(end * kLanes, C));
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
