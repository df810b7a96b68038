#include "kernels/cuda/vector.cuh"

namespace trireme::kernels::cuda {
namespace {

// threadIdx.x goes over half a head, whose angles serve all heads (threadIdx.y).
template <int kWidth, bool kAligned, class N>
__global__ void rotate(int64_t rows, int64_t heads, int64_t D, int64_t row_stride, N* x, const int32_t* positions,
                       const float* cos_sin, float direction) {
  const int64_t half = D / 2;
  for (int64_t n = blockIdx.x; n < rows; n += gridDim.x) {
    const float* cosines = cos_sin + positions[n] * D;
    for (int64_t i = int64_t{threadIdx.x} * kWidth; i < half; i += int64_t{blockDim.x} * kWidth) {
      const int64_t left = half - i;
      const auto cosine = load_floats<kWidth, kAligned>(cosines + i, left);
      const auto sine = load_floats<kWidth, kAligned>(cosines + half + i, left);
      for (int64_t h = threadIdx.y; h < heads; h += blockDim.y) {
        N* first = x + n * row_stride + h * D + i;
        auto a = load_floats<kWidth, kAligned>(first, left), b = load_floats<kWidth, kAligned>(first + half, left);
#pragma unroll
        for (int j = 0; j < kWidth; ++j) {
          const float s = sine.at[j] * direction, before = a.at[j];
          a.at[j] = before * cosine.at[j] - b.at[j] * s;
          b.at[j] = b.at[j] * cosine.at[j] + before * s;
        }
        store<kAligned>(first, left, a);
        store<kAligned>(first + half, left, b);
      }
    }
  }
}

}  // namespace

template <class T>
void rope(int64_t N, int64_t heads, int64_t D, int64_t row_stride, T* x, const int32_t* positions, const float* cos_sin,
          int sign) {
  constexpr int kWidth = kWidthOf<T>;
  const int64_t half = D / 2;
  if (N == 0 || heads == 0 || half == 0) return;
  dim3 block = block_of_rows(ceil_div(half, kWidth));
  block.y = static_cast<unsigned>(std::min(int64_t{block.y}, heads));
  const auto grid = static_cast<unsigned>(std::min(N, int64_t{1} << 30));
  with_bool(are_aligned<kWidth>(row_stride, x) && are_aligned<kWidth>(D, cos_sin) && half % kWidth == 0,
            [&]<class Aligned>(Aligned) {
              rotate<kWidth, Aligned::value><<<grid, block, 0, current().stream>>>(
                  N, heads, D, row_stride, native(x), positions, cos_sin, static_cast<float>(sign));
            });
  TRIREME_CUDA_LAUNCHED("rope");
}

#define TRIREME_INSTANCES(T) \
  template void rope(int64_t, int64_t, int64_t, int64_t, T*, const int32_t*, const float*, int);
TRIREME_INSTANCES(float)
TRIREME_INSTANCES(bfloat16)
TRIREME_INSTANCES(float16)

}  // namespace trireme::kernels::cuda
