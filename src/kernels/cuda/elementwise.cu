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

constexpr int kMostSlots = 8;
template <class N>
struct Slots {
  const N* at[kMostSlots];
};

template <class S, int kWidth>
__device__ Floats<kWidth> rounded_to(const Floats<kWidth>& x) {
  return floats(rounded<S>(x));
}

// sum[i] (+)= slots[0][i], slots[1][i], ...: each is read once.
template <int kWidth, bool kAligned, class N, class S>
__global__ void accumulate_all_kernel(int64_t n, int count, Slots<N> slots, DType wire, S* sum, bool overwrite) {
  const int64_t i = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kWidth;
  if (i >= n) return;
  Neighbours<N, kWidth> x[kMostSlots];
#pragma unroll
  for (int slot = 0; slot < kMostSlots; ++slot) {
    if (slot < count) x[slot] = load<kWidth, kAligned>(slots.at[slot] + i, n - i);
  }
  Floats<kWidth> total{};
  if (!overwrite) total = load_floats<kWidth, kAligned>(sum + i, n - i);
#pragma unroll
  for (int slot = 0; slot < kMostSlots; ++slot) {
    if (slot >= count) continue;
    Floats<kWidth> values = floats(x[slot]);
    if (wire == DType::bf16) values = rounded_to<__nv_bfloat16>(values);
    if (wire == DType::f16) values = rounded_to<__half>(values);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) total.at[j] = overwrite && slot == 0 ? values.at[j] : total.at[j] + values.at[j];
    total = rounded_to<S>(total);
  }
  store<kAligned>(sum + i, n - i, total);
}

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
  for_each_in_rows<kWidth>("soft_cap", N, V, are_aligned<kWidth>(V, stride, x),
                           SoftCap<Native<T>>{V, stride, static_cast<float>(cap), native(x)});
}

template <class T>
void accumulate(int64_t n, const T* slot, float* accumulator, bool overwrite) {
  if (overwrite) return map("accumulate", n, Same{}, accumulator, slot);
  map("accumulate", n, Sum{}, accumulator, accumulator, slot);
}

template <class T, class S>
void accumulate_into(int64_t n, int count, const T* const* slots, DType wire, S* sum, bool overwrite) {
  using N = Native<T>;
  constexpr int kWidth = kWidthOf<float, N>, kThreads = 256;
  if (n == 0) return;
  if (wire == dtype_of<T>) wire = DType::f32;  // it is rounded already
  for (int first = 0; first < count; first += kMostSlots) {
    Slots<N> some{};
    const int size = std::min(kMostSlots, count - first);
    bool aligned = are_aligned<kWidth>(n, 0, sum);
    for (int slot = 0; slot < size; ++slot) {
      some.at[slot] = native(slots[first + slot]);
      aligned = aligned && are_aligned<kWidth>(n, 0, some.at[slot]);
    }
    with_bool(aligned, [&]<class Aligned>(Aligned) {
      accumulate_all_kernel<kWidth, Aligned::value>
          <<<static_cast<unsigned>(ceil_div(n, kWidth * kThreads)), kThreads, 0, current().stream>>>(
              n, size, some, wire, sum, overwrite && first == 0);
    });
    TRIREME_CUDA_LAUNCHED("accumulate_all");
  }
}

template <class T>
void accumulate_all(int64_t n, int count, const T* const* slots, DType wire, DType sum_dtype, void* sum,
                    bool overwrite) {
  if (sum_dtype == DType::f32) return accumulate_into(n, count, slots, wire, static_cast<float*>(sum), overwrite);
  accumulate_into(n, count, slots, wire, static_cast<__nv_bfloat16*>(sum), overwrite);
}

template <class T>
void cast_from_float(int64_t n, const float* x, T* y) {
  map("cast_from_float", n, Same{}, y, x);
}

template <class T>
void cast_to_float(int64_t n, const T* x, float* y) {
  map("cast_to_float", n, Same{}, y, x);
}

#define TRIREME_INSTANCES(T)                                                              \
  template void add(int64_t, const T*, const T*, T*);                                     \
  template void scale(int64_t, double, T*);                                               \
  template void soft_cap(int64_t, int64_t, int64_t, double, T*);                          \
  template void accumulate(int64_t, const T*, float*, bool);                              \
  template void accumulate_all(int64_t, int, const T* const*, DType, DType, void*, bool); \
  template void cast_from_float(int64_t, const float*, T*);                               \
  template void cast_to_float(int64_t, const T*, float*);
TRIREME_INSTANCES(float)
TRIREME_INSTANCES(bfloat16)
TRIREME_INSTANCES(float16)

}  // namespace trireme::kernels::cuda
