#include "kernels/cuda/vector.cuh"

namespace trireme::kernels::cuda {
namespace {

constexpr int kHeads = 4;  // that a thread asks for at once

// threadIdx.x goes over half a head, whose angles serve all heads (threadIdx.y); threadIdx.z over rows.
template <int kWidth, bool kAligned, class N>
__global__ void __launch_bounds__(256, 3) rotate(int64_t rows, int64_t heads, int64_t D, int64_t row_stride, N* x,
                                                 const int32_t* positions, const float* cos_sin, float direction) {
  const int64_t half = D / 2, n = int64_t{blockIdx.x} * blockDim.z + threadIdx.z;
  if (n >= rows) return;
  const float* cosines = cos_sin + positions[n] * D;
  for (int64_t i = int64_t{threadIdx.x} * kWidth; i < half; i += int64_t{blockDim.x} * kWidth) {
    const int64_t left = half - i;
    N* const row = x + n * row_stride + i;
    const auto cosine = load_floats<kWidth, kAligned>(cosines + i, left);
    const auto sine = load_floats<kWidth, kAligned>(cosines + half + i, left);
    for (int64_t h = threadIdx.y; h < heads; h += kHeads * blockDim.y) {
      Neighbours<N, kWidth> pair[kHeads][2];
#pragma unroll
      for (int u = 0; u < kHeads; ++u) {
        const int64_t head = h + u * blockDim.y, some = head < heads ? left : 0;
        pair[u][0] = load<kWidth, kAligned>(row + head * D, some);
        pair[u][1] = load<kWidth, kAligned>(row + head * D + half, some);
      }
#pragma unroll
      for (int u = 0; u < kHeads; ++u) {
        const int64_t head = h + u * blockDim.y, some = head < heads ? left : 0;
        auto a = floats(pair[u][0]), b = floats(pair[u][1]);
#pragma unroll
        for (int j = 0; j < kWidth; ++j) {
          const float s = sine.at[j] * direction, before = a.at[j];
          a.at[j] = before * cosine.at[j] - b.at[j] * s;
          b.at[j] = b.at[j] * cosine.at[j] + before * s;
        }
        store<kAligned>(row + head * D, some, a);
        store<kAligned>(row + head * D + half, some, b);
      }
    }
  }
}

}  // namespace

template <class T>
void rope(int64_t N, int64_t heads, int64_t D, int64_t row_stride, T* x, const int32_t* positions, const float* cos_sin,
          int sign) {
  constexpr int kWidth = kWidthOf<T>;
  constexpr int64_t kThreads = 256;
  const int64_t half = D / 2;
  if (N == 0 || heads == 0 || half == 0) return;
  const int64_t of_head = std::min(ceil_div(half, kWidth), kThreads);
  const int64_t of_row = std::min(ceil_div(heads, kHeads), kThreads / of_head);
  const int64_t rows = std::min(kThreads / (of_head * of_row), int64_t{64});  // the most that threadIdx.z goes over
  const dim3 block(static_cast<unsigned>(of_head), static_cast<unsigned>(of_row), static_cast<unsigned>(rows));
  const bool aligned = are_aligned<kWidth>(half, row_stride, x) && are_aligned<kWidth>(half, D, cos_sin);
  with_bool(aligned, [&]<class Aligned>(Aligned) {
    rotate<kWidth, Aligned::value><<<static_cast<unsigned>(ceil_div(N, rows)), block, 0, current().stream>>>(
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
