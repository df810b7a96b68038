#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/map.cuh"

namespace trireme::kernels::cuda {
namespace {

template <class N>
struct AddBias {
  int64_t C;
  const N* b;
  const N* addend;
  N* y;
  template <int kWidth, bool kAligned>
  __device__ void operator()(int64_t n, int64_t c) const {
    const int64_t at = n * C + c;
    auto sum = load_floats<kWidth, kAligned>(b + c, C - c);
    if (addend != nullptr) {
      const auto value = load_floats<kWidth, kAligned>(addend + at, C - c);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sum.at[i] += value.at[i];
    }
    store<kAligned>(y + at, C - c, sum);
  }
};

template <class N>
struct AddGradient {
  int64_t C;
  const N* dy;
  template <bool kAligned, int kWidth>
  __device__ void operator()(Floats<kWidth>& sum, int64_t n, int64_t c, int64_t left) const {
    const auto d = load_floats<kWidth, kAligned>(dy + n * C + c, left);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sum.at[i] += d.at[i];
  }
};

}  // namespace

template <class T>
void bias_forward(int64_t N, int64_t C, const T* b, const T* addend, T* y) {
  constexpr int kWidth = kWidthOf<T>;
  for_each_in_rows<kWidth>("bias_forward", N, C, are_aligned<kWidth>(C, b, addend, y),
                           AddBias<Native<T>>{C, native(b), native(addend), native(y)});
}

template <class T>
void bias_backward(int64_t N, int64_t C, const T* dy, T* db, bool add) {
  sum_columns("bias_backward", N, C, are_aligned<kWidthOf<T>>(C, dy), db, add, AddGradient<Native<T>>{C, native(dy)});
}

#define TRIREME_INSTANCES(T)                                            \
  template void bias_forward(int64_t, int64_t, const T*, const T*, T*); \
  template void bias_backward(int64_t, int64_t, const T*, T*, bool);
TRIREME_INSTANCES(float)
TRIREME_INSTANCES(bfloat16)
TRIREME_INSTANCES(float16)

}  // namespace trireme::kernels::cuda
