// Activations alone and as the gate of a product.
#include "kernels/activation.h"

#include "kernels/cuda/map.cuh"

namespace trireme::kernels::cuda {
namespace {

struct Slope {
  float value, derivative;
};

template <class N>
__device__ float sigmoid(float x) {
  return quotient<N>(1.0f, 1.0f + exponential<N>(-x));
}

// One type an activation: value(x), and value and derivative together. The formulas of the CPU.
template <class N>
struct Silu {
  __device__ static float value(float x) { return x * sigmoid<N>(x); }
  __device__ static Slope slope(float x) {
    const float s = sigmoid<N>(x);
    return {x * s, s * fmaf(x, 1.0f - s, 1.0f)};
  }
};

template <class N>
struct GeluTanh {
  static constexpr float kSlope = 1.5957691216057308f, kCubic = 0.044715f;
  __device__ static float sigmoid_of(float x) { return sigmoid<N>(x * fmaf(x * x, kCubic, 1.0f) * kSlope); }
  __device__ static float value(float x) { return x * sigmoid_of(x); }
  __device__ static Slope slope(float x) {
    const float s = sigmoid_of(x), inner = fmaf(x * x, 3.0f * kCubic, 1.0f) * kSlope;
    return {x * s, s * fmaf(x * (1.0f - s), inner, 1.0f)};
  }
};

template <class N>
struct Gelu {
  __device__ static float probability(float x) { return fmaf(erff(x * 0.7071067811865476f), 0.5f, 0.5f); }
  __device__ static float value(float x) { return x * probability(x); }
  __device__ static Slope slope(float x) {
    const float p = probability(x);
    return {x * p, fmaf(x, exponential<N>(x * x * -0.5f) * 0.3989422804014327f, p)};
  }
};

template <class N>
struct Relu {
  __device__ static float value(float x) { return x < 0.0f ? 0.0f : x; }  // NaN stays
  __device__ static Slope slope(float x) { return {value(x), x > 0.0f ? 1.0f : 0.0f}; }
};

template <class Kind>
struct Value {
  __device__ float operator()(float x) const { return Kind::value(x); }
};

template <class Kind, class N>
struct Gate {
  int64_t F;
  const N* gate_up;
  N* y;
  template <int kWidth, bool kAligned>
  __device__ void operator()(int64_t n, int64_t f) const {
    const N* at = gate_up + n * 2 * F + f;
    const auto gate = load_floats<kWidth, kAligned>(at, F - f), up = load_floats<kWidth, kAligned>(at + F, F - f);
    Floats<kWidth> product;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) product.at[i] = Kind::value(gate.at[i]) * up.at[i];
    store<kAligned>(y + n * F + f, F - f, product);
  }
};

template <class Kind, class N>
struct GateGradient {
  int64_t F;
  const N* gate_up;
  const N* dy;
  N* dgate_up;
  N* y;
  template <int kWidth, bool kAligned>
  __device__ void operator()(int64_t n, int64_t f) const {
    const int64_t at = n * 2 * F + f, left = F - f;
    const auto gate = load_floats<kWidth, kAligned>(gate_up + at, left);
    const auto up = load_floats<kWidth, kAligned>(gate_up + at + F, left);
    const auto d = load_floats<kWidth, kAligned>(dy + n * F + f, left);
    Floats<kWidth> dgate, dup, product;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const Slope slope = Kind::slope(gate.at[i]);
      dgate.at[i] = d.at[i] * up.at[i] * slope.derivative;
      dup.at[i] = d.at[i] * slope.value;
      product.at[i] = slope.value * up.at[i];
    }
    store<kAligned>(dgate_up + at, left, dgate);
    store<kAligned>(dgate_up + at + F, left, dup);
    if (y != nullptr) store<kAligned>(y + n * F + f, left, product);
  }
};

// A row of n elements.
template <class Kind, class N>
struct Gradient {
  int64_t n;
  const N* x;
  const N* dy;
  N* dx;
  N* y;
  template <int kWidth, bool kAligned>
  __device__ void operator()(int64_t, int64_t i) const {
    auto value = load_floats<kWidth, kAligned>(x + i, n - i), d = load_floats<kWidth, kAligned>(dy + i, n - i);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const Slope slope = Kind::slope(value.at[j]);
      d.at[j] *= slope.derivative;
      value.at[j] = slope.value;
    }
    store<kAligned>(dx + i, n - i, d);
    if (y != nullptr) store<kAligned>(y + i, n - i, value);
  }
};

// step(Silu<N>{}) and so on.
template <class N, class Step>
void with(Activation activation, Step step) {
  switch (activation) {
    case Activation::silu: return step(Silu<N>{});
    case Activation::gelu_tanh: return step(GeluTanh<N>{});
    case Activation::gelu: return step(Gelu<N>{});
    case Activation::relu: return step(Relu<N>{});
  }
}

}  // namespace

template <class T>
void glu_forward(Activation activation, int64_t N, int64_t F, const T* gate_up, T* y) {
  constexpr int kWidth = kWidthOf<T>;
  with<Native<T>>(activation, [=]<class Kind>(Kind) {
    for_each_in_rows<kWidth>("glu_forward", N, F, are_aligned<kWidth>(F, F, gate_up, y),
                             Gate<Kind, Native<T>>{F, native(gate_up), native(y)});
  });
}

template <class T>
void glu_backward(Activation activation, int64_t N, int64_t F, const T* gate_up, const T* dy, T* dgate_up, T* y) {
  constexpr int kWidth = kWidthOf<T>;
  with<Native<T>>(activation, [=]<class Kind>(Kind) {
    for_each_in_rows<kWidth>(
        "glu_backward", N, F, are_aligned<kWidth>(F, F, gate_up, dy, dgate_up, y),
        GateGradient<Kind, Native<T>>{F, native(gate_up), native(dy), native(dgate_up), native(y)});
  });
}

template <class T>
void activation_forward(Activation activation, int64_t n, const T* x, T* y) {
  with<Native<T>>(activation, [=]<class Kind>(Kind) { map("activation_forward", n, Value<Kind>{}, y, x); });
}

template <class T>
void activation_backward(Activation activation, int64_t n, const T* x, const T* dy, T* dx, T* y) {
  constexpr int kWidth = kWidthOf<T>;
  with<Native<T>>(activation, [=]<class Kind>(Kind) {
    for_each_in_rows<kWidth>("activation_backward", 1, n, are_aligned<kWidth>(n, 0, x, dy, dx, y),
                             Gradient<Kind, Native<T>>{n, native(x), native(dy), native(dx), native(y)});
  });
}

#define TRIREME_INSTANCES(T)                                                            \
  template void glu_forward(Activation, int64_t, int64_t, const T*, T*);                \
  template void glu_backward(Activation, int64_t, int64_t, const T*, const T*, T*, T*); \
  template void activation_forward(Activation, int64_t, const T*, T*);                  \
  template void activation_backward(Activation, int64_t, const T*, const T*, T*, T*);
TRIREME_INSTANCES(float)
TRIREME_INSTANCES(bfloat16)
TRIREME_INSTANCES(float16)

}  // namespace trireme::kernels::cuda
