// Sums over rows, column by column, in a fixed order: weight and bias gradients.
#pragma once
#include <array>

#include "kernels/cuda/vector.cuh"

namespace trireme::kernels::cuda {

// Blocks are counted for so many, an H100's, whatever the device has: the order of sums follows from it.
constexpr int64_t kFillingMultiprocessors = 132;

template <class N>
struct ColumnSum {
  N* out = nullptr;  // [C]; null: not wanted
  bool add = false;  // to what is there
};

constexpr int kSumLanes = 32;  // threads of a column

template <class N>
__global__ void __launch_bounds__(32 * kSumLanes)
    sum_parts(int64_t parts, int64_t C, const float* partial, std::array<ColumnSum<N>, 2> outs) {
  __shared__ float of_lane[kSumLanes][32];
  const ColumnSum<N> result = blockIdx.y == 0 ? outs[0] : outs[1];
  if (result.out == nullptr) return;
  partial += blockIdx.y * parts * C;
  const int64_t c = int64_t{blockIdx.x} * 32 + threadIdx.x;
  float sum = 0;
  if (c < C) {
#pragma unroll 8
    for (int64_t part = threadIdx.y; part < parts; part += kSumLanes) sum += partial[part * C + c];
  }
  of_lane[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || c >= C) return;
#pragma unroll
  for (int lane = 1; lane < kSumLanes; ++lane) sum += of_lane[lane][threadIdx.x];
  if (result.add) sum += to_float(result.out[c]);
  result.out[c] = from_float<N>(sum);
}

// outs[i] = the sum of partial[i][parts][C] over the parts.
template <class N>
void add_partial_sums(const char* name, int64_t parts, int64_t C, const float* partial,
                      const std::array<ColumnSum<N>, 2>& outs) {
  if (C == 0) return;
  const dim3 grid(static_cast<unsigned>(ceil_div(C, 32)), outs[1].out == nullptr ? 1 : 2);
  sum_parts<<<grid, dim3(32, kSumLanes), 0, current().stream>>>(parts, C, partial, outs);
  TRIREME_CUDA_LAUNCHED(name);
}

}  // namespace trireme::kernels::cuda
