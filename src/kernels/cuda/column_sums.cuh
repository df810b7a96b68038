// Sums over rows, column by column, in a fixed order: weight and bias gradients.
#pragma once
#include <array>

#include "kernels/cuda/early.cuh"
#include "kernels/cuda/vector.cuh"

namespace trireme::kernels::cuda {

template <class N>
struct ColumnSum {
  N* out = nullptr;  // [C]; null: not wanted
  bool add = false;  // to what is there
};

constexpr int kSumLanes = 32;  // threads of a column

template <class N>
__global__ void __launch_bounds__(32 * kSumLanes)
    sum_parts(int parts, int64_t C, const float* partial, std::array<ColumnSum<N>, 2> outs) {
  constexpr int kUnroll = ceil_div(2 * kFillingMultiprocessors, kSumLanes);  // all, of two blocks a multiprocessor
  __shared__ float of_lane[kSumLanes][32];
  const ColumnSum<N> result = blockIdx.y == 0 ? outs[0] : outs[1];
  if (result.out == nullptr) return;
  partial += blockIdx.y * parts * C;
  const int64_t c = int64_t{blockIdx.x} * 32 + threadIdx.x;
  wait_for_kernel_before();
  const float before = result.add && threadIdx.y == 0 && c < C ? to_float(result.out[c]) : 0.0f;
  float sum = 0;
  const int64_t step = kSumLanes * C;
  for (int part = static_cast<int>(threadIdx.y); part < parts; part += kUnroll * kSumLanes) {
    const float* from = partial + part * C + c;
    float some[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) some[u] = part + u * kSumLanes < parts && c < C ? from[u * step] : 0.0f;
#pragma unroll
    for (const float value : some) sum += value;
  }
  of_lane[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || c >= C) return;
#pragma unroll
  for (int lane = 1; lane < kSumLanes; ++lane) sum += of_lane[lane][threadIdx.x];
  result.out[c] = from_float<N>(result.add ? sum + before : sum);
}

// outs[i] = the sum of partial[i][parts][C], which the kernel before wrote, over the parts.
template <class N>
void add_partial_sums(const char* name, int64_t parts, int64_t C, const float* partial,
                      const std::array<ColumnSum<N>, 2>& outs) {
  if (C == 0) return;
  const dim3 blocks(static_cast<unsigned>(ceil_div(C, 32)), outs[1].out == nullptr ? 1 : 2);
  launch_early(name, sum_parts<N>, blocks, dim3(32, kSumLanes), static_cast<int>(parts), C, partial, outs);
}

// to[c] = the sum of shared[kGroups][kColumns], for c < C. All threads of the block, so many as kThreads.
template <int kGroups, int kColumns, int kThreads>
__device__ void sum_groups(const float* shared, int thread, int64_t C, float* to) {
#pragma unroll
  for (int i = 0; i < (kColumns + kThreads - 1) / kThreads; ++i) {
    const int c = i * kThreads + thread;
    if (c >= kColumns || c >= C) return;
    float sum = 0;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) sum += shared[group * kColumns + c];
    to[c] = sum;
  }
}

}  // namespace trireme::kernels::cuda
