#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/map.cuh"

namespace trireme::kernels::cuda {
namespace {

template <class N>
struct AddBias {
  int64_t C;
  const N* b;
  N* y;
  bool add;
  template <int kWidth, bool kAligned>
  __device__ void operator()(int64_t n, int64_t c) const {
    N* place = y + n * C + c;
    auto sum = load_floats<kWidth, kAligned>(b + c, C - c);
    if (add) {
      const auto value = load_floats<kWidth, kAligned>(place, C - c);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sum.at[i] += value.at[i];
    }
    store<kAligned>(place, C - c, sum);
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
void bias_forward(int64_t N, int64_t C, const T* b, T* y, bool add) {
  constexpr int kWidth = kWidthOf<T>;
  for_each_in_rows<kWidth>("bias_forward", N, C, are_aligned<kWidth>(C, b, y),
                           AddBias<Native<T>>{C, native(b), native(y), add});
}

template <class T>
void bias_backward(int64_t N, int64_t C, const T* dy, T* db, bool add) {
  sum_columns("bias_backward", N, C, are_aligned<kWidthOf<T>>(C, dy), db, add, AddGradient<Native<T>>{C, native(dy)});
}

#define TRIREME_INSTANCES(T)                                        \
  template void bias_forward(int64_t, int64_t, const T*, T*, bool); \
  template void bias_backward(int64_t, int64_t, const T*, T*, bool);
TRIREME_INSTANCES(float)
TRIREME_INSTANCES(bfloat16)
TRIREME_INSTANCES(float16)

}  // namespace trireme::kernels::cuda
