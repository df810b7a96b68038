// add, scale, soft_cap, accumulate and the casts.
#include "kernels/cuda/map.cuh"

namespace trireme::kernels::cuda {
namespace {

struct Same {
  __device__ float operator()(float x) const { return x; }
};
struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Product {
  float factor;
  __device__ float operator()(float x) const { return x * factor; }
};

template <class N>
struct SoftCap {
  int64_t V, stride;
  float cap;
  N* x;
  template <int kWidth, bool kAligned>
  __device__ void operator()(int64_t n, int64_t v) const {
    N* place = x + n * stride + v;
    auto value = load_floats<kWidth, kAligned>(place, V - v);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) value.at[i] = cap * tanhf(value.at[i] / cap);
    store<kAligned>(place, V - v, value);
  }
};

}  // namespace

template <class T>
void add(int64_t n, const T* a, const T* b, T* out) {
  map("add", n, Sum{}, out, a, b);
}

template <class T>
void scale(int64_t n, double factor, T* x) {
  map("scale", n, Product{static_cast<float>(factor)}, x, x);
}

template <class T>
void soft_cap(int64_t N, int64_t V, int64_t stride, double cap, T* x) {
  constexpr int kWidth = kWidthOf<T>;
  for_each_in_rows<kWidth>("soft_cap", N, V, are_aligned<kWidth>(stride, x),
                           SoftCap<Native<T>>{V, stride, static_cast<float>(cap), native(x)});
}

template <class T>
void accumulate(int64_t n, const T* slot, float* accumulator, bool overwrite) {
  if (overwrite) return map("accumulate", n, Same{}, accumulator, slot);
  map("accumulate", n, Sum{}, accumulator, accumulator, slot);
}

template <class T>
void cast_from_float(int64_t n, const float* x, T* y) {
  map("cast_from_float", n, Same{}, y, x);
}

template <class T>
void cast_to_float(int64_t n, const T* x, float* y) {
  map("cast_to_float", n, Same{}, y, x);
}

#define TRIREME_INSTANCES(T)                                     \
  template void add(int64_t, const T*, const T*, T*);            \
  template void scale(int64_t, double, T*);                      \
  template void soft_cap(int64_t, int64_t, int64_t, double, T*); \
  template void accumulate(int64_t, const T*, float*, bool);     \
  template void cast_from_float(int64_t, const float*, T*);      \
  template void cast_to_float(int64_t, const T*, float*);
TRIREME_INSTANCES(float)
TRIREME_INSTANCES(bfloat16)
TRIREME_INSTANCES(float16)

}  // namespace trireme::kernels::cuda
