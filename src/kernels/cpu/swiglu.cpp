#include "kernels/cpu/level.h"
#include "kernels/cpu/vector.h"

namespace trireme::kernels::TRIREME_LEVEL {
namespace {

template <class S>
TRIREME_INLINE Vector<S> sigmoid(Vector<S> x) {
  const auto one = splat(S{1});
  return one / (one + exponential(splat(S{0}) - x));
}

}  // namespace

template <class T>
void swiglu_forward(int64_t N, int64_t F, const T* gate_up, T* y) {
  parallel_ranges(N, N * F, [=](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const T* gate = gate_up + n * 2 * F;
      for_each_vector<kLanesOf<T>>(F, [=](int64_t f, auto lanes) {
        const auto g = load(gate + f, lanes);
        store(y + n * F + f, g * sigmoid(g) * load(gate + F + f, lanes), lanes);
      });
    }
  });
}

template <class T>
void swiglu_backward(int64_t N, int64_t F, const T* gate_up, const T* dy, T* dgate_up) {
  parallel_ranges(N, N * F, [=](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const T* gate = gate_up + n * 2 * F;
      T* dgate = dgate_up + n * 2 * F;
      for_each_vector<kLanesOf<T>>(F, [=](int64_t f, auto lanes) {
        const auto g = load(gate + f, lanes);
        const auto u = load(gate + F + f, lanes);
        const auto d = load(dy + n * F + f, lanes);
        const auto s = sigmoid(g);
        const auto one = splat(Acc<T>{1});
        store(dgate + f, d * u * s * multiply_add(g, one - s, one), lanes);
        store(dgate + F + f, d * g * s, lanes);
      });
    }
  });
}

#define TRIREME_INSTANCES(T)                                    \
  template void swiglu_forward(int64_t, int64_t, const T*, T*); \
  template void swiglu_backward(int64_t, int64_t, const T*, const T*, T*);
TRIREME_INSTANCES(float)
TRIREME_INSTANCES(bfloat16)
TRIREME_INSTANCES(double)

}  // namespace trireme::kernels::TRIREME_LEVEL
