// Activations alone and as the gate of a product.
#include "kernels/activation.h"

#include "kernels/cpu/vector.h"
#include "kernels/level.h"

namespace trireme::kernels::TRIREME_LEVEL {
namespace {

template <class S>
struct Slope {
  Vector<S> value, derivative;
};

template <class S>
TRIREME_INLINE Vector<S> sigmoid(Vector<S> x) {
  const auto one = splat(S{1});
  return one / (one + exponential(splat(S{0}) - x));
}

// One type an activation: value(x), and value and derivative together.
struct Silu {
  template <class S>
  static TRIREME_INLINE Vector<S> value(Vector<S> x) {
    return x * sigmoid(x);
  }
  template <class S>
  static TRIREME_INLINE Slope<S> slope(Vector<S> x) {
    const auto s = sigmoid(x), one = splat(S{1});
    return {x * s, s * multiply_add(x, one - s, one)};
  }
};

// x / 2 * (1 + tanh(u)) is x * sigmoid(2 u), without cancellation; u = sqrt(2 / pi) * (x + 0.044715 x^3).
struct GeluTanh {
  static constexpr double kSlope = 1.5957691216057308, kCubic = 0.044715;  // 2 sqrt(2 / pi)
  template <class S>
  static TRIREME_INLINE Vector<S> sigmoid_of(Vector<S> x) {
    const auto inner = multiply_add(x * x, splat(static_cast<S>(kCubic)), splat(S{1}));
    return sigmoid(x * inner * splat(static_cast<S>(kSlope)));
  }
  template <class S>
  static TRIREME_INLINE Vector<S> value(Vector<S> x) {
    return x * sigmoid_of(x);
  }
  template <class S>
  static TRIREME_INLINE Slope<S> slope(Vector<S> x) {
    const auto s = sigmoid_of(x), one = splat(S{1});
    const auto inner = multiply_add(x * x, splat(static_cast<S>(3 * kCubic)), one) * splat(static_cast<S>(kSlope));
    return {x * s, s * multiply_add(x * (one - s), inner, one)};
  }
};

struct Gelu {
  template <class S>
  static TRIREME_INLINE Vector<S> probability(Vector<S> x) {  // of a normal number below x
    const auto half = splat(static_cast<S>(0.5));
    return multiply_add(error_function(x * splat(static_cast<S>(0.7071067811865476))), half, half);
  }
  template <class S>
  static TRIREME_INLINE Vector<S> value(Vector<S> x) {
    return x * probability(x);
  }
  template <class S>
  static TRIREME_INLINE Slope<S> slope(Vector<S> x) {
    const auto p = probability(x);
    const auto density = exponential(x * x * splat(static_cast<S>(-0.5))) * splat(static_cast<S>(0.3989422804014327));
    return {x * p, multiply_add(x, density, p)};
  }
};

struct Relu {
  template <class S>
  static TRIREME_INLINE Vector<S> value(Vector<S> x) {
    for (int i = 0; i < kParts; ++i) x.part[i] = x.part[i] < S{0} ? Register<S>{} : x.part[i];  // NaN stays
    return x;
  }
  template <class S>
  static TRIREME_INLINE Slope<S> slope(Vector<S> x) {
    Vector<S> derivative;
    for (int i = 0; i < kParts; ++i) {
      derivative.part[i] = x.part[i] > S{0} ? S{1} - Register<S>{} : Register<S>{};
    }
    return {value(x), derivative};
  }
};

// step(Silu{}) and so on.
template <class Step>
TRIREME_INLINE void with(Activation activation, Step step) {
  switch (activation) {
    case Activation::silu: return step(Silu{});
    case Activation::gelu_tanh: return step(GeluTanh{});
    case Activation::gelu: return step(Gelu{});
    case Activation::relu: return step(Relu{});
  }
}

template <class F, class T>
void gate_forward(int64_t N, int64_t width, const T* gate_up, T* y) {
  parallel_ranges(N, N * width, [=](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const T* gate = gate_up + n * 2 * width;
      for_each_vector<kLanesOf<T>>(width, [=](int64_t f, auto lanes) {
        store(y + n * width + f, F::value(load(gate + f, lanes)) * load(gate + width + f, lanes), lanes);
      });
    }
  });
}

template <class F, class T>
void gate_backward(int64_t N, int64_t width, const T* gate_up, const T* dy, T* dgate_up, T* y) {
  parallel_ranges(N, N * width, [=](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const T* gate = gate_up + n * 2 * width;
      T* dgate = dgate_up + n * 2 * width;
      for_each_vector<kLanesOf<T>>(width, [=](int64_t f, auto lanes) {
        const auto slope = F::slope(load(gate + f, lanes));
        const auto u = load(gate + width + f, lanes);
        const auto d = load(dy + n * width + f, lanes);
        store(dgate + f, d * u * slope.derivative, lanes);
        store(dgate + width + f, d * slope.value, lanes);
        if (y != nullptr) store(y + n * width + f, slope.value * u, lanes);
      });
    }
  });
}

template <class F, class T>
void alone_forward(int64_t n, const T* x, T* y) {
  parallel_elements(n, [=](int64_t begin, int64_t end) {
    for_each_vector<kLanesOf<T>>(
        end - begin, [=](int64_t i, auto lanes) { store(y + begin + i, F::value(load(x + begin + i, lanes)), lanes); });
  });
}

template <class F, class T>
void alone_backward(int64_t n, const T* x, const T* dy, T* dx, T* y) {
  parallel_elements(n, [=](int64_t begin, int64_t end) {
    for_each_vector<kLanesOf<T>>(end - begin, [=](int64_t i, auto lanes) {
      i += begin;
      const auto slope = F::slope(load(x + i, lanes));
      store(dx + i, load(dy + i, lanes) * slope.derivative, lanes);
      if (y != nullptr) store(y + i, slope.value, lanes);
    });
  });
}

}  // namespace

template <class T>
void glu_forward(Activation activation, int64_t N, int64_t F, const T* gate_up, T* y) {
  with(activation, [=]<class Kind>(Kind) { gate_forward<Kind>(N, F, gate_up, y); });
}

template <class T>
void glu_backward(Activation activation, int64_t N, int64_t F, const T* gate_up, const T* dy, T* dgate_up, T* y) {
  with(activation, [=]<class Kind>(Kind) { gate_backward<Kind>(N, F, gate_up, dy, dgate_up, y); });
}

template <class T>
void activation_forward(Activation activation, int64_t n, const T* x, T* y) {
  with(activation, [=]<class Kind>(Kind) { alone_forward<Kind>(n, x, y); });
}

template <class T>
void activation_backward(Activation activation, int64_t n, const T* x, const T* dy, T* dx, T* y) {
  with(activation, [=]<class Kind>(Kind) { alone_backward<Kind>(n, x, dy, dx, y); });
}

#define TRIREME_INSTANCES(T)                                                            \
  template void glu_forward(Activation, int64_t, int64_t, const T*, T*);                \
  template void glu_backward(Activation, int64_t, int64_t, const T*, const T*, T*, T*); \
  template void activation_forward(Activation, int64_t, const T*, T*);                  \
  template void activation_backward(Activation, int64_t, const T*, const T*, T*, T*);
TRIREME_INSTANCES(float)
TRIREME_INSTANCES(bfloat16)
TRIREME_INSTANCES(float16)
TRIREME_INSTANCES(double)

}  // namespace trireme::kernels::TRIREME_LEVEL
