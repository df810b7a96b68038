// Sums over rows, column by column, in a fixed order: weight and bias gradients.
#pragma once
#include "kernels/cuda/vector.cuh"

namespace trireme::kernels::cuda {

// partial[part][C] = the sum of the part's rows: add_row<kAligned>(sum, n, c, left) is sum with row n's columns c, c + 1,
// ... added.
template <int kWidth, bool kAligned, class AddRow>
__global__ void partial_column_sums(int64_t N, int64_t C, int64_t rows, float* partial, AddRow add_row) {
  const int64_t c = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kWidth;
  const int64_t part = int64_t{blockIdx.y} * blockDim.y + threadIdx.y, end = std::min((part + 1) * rows, N);
  if (c >= C || part * rows >= N) return;
  Floats<kWidth> sum = {};
#pragma unroll 4
  for (int64_t n = part * rows; n < end; ++n) add_row.template operator()<kAligned>(sum, n, c, C - c);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    if (c + i < C) partial[part * C + c + i] = sum.at[i];
  }
}

constexpr int kSumLanes = 16;  // threads of a column

template <class N>
__global__ void sum_parts(int64_t parts, int64_t C, const float* partial, N* out, bool add) {
  __shared__ float of_lane[kSumLanes][32];
  const int64_t c = int64_t{blockIdx.x} * 32 + threadIdx.x;
  float sum = 0;
  if (c < C) {
#pragma unroll 8
    for (int64_t part = threadIdx.y; part < parts; part += kSumLanes) sum += partial[part * C + c];
  }
  of_lane[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || c >= C) return;
  for (int lane = 1; lane < kSumLanes; ++lane) sum += of_lane[lane][threadIdx.x];
  if (add) sum += to_float(out[c]);
  out[c] = from_float<N>(sum);
}

// out[C] = the sum of N rows (+ out if add), in parts that depend on N, C and the type alone.
template <class T, class AddRow>
void sum_columns(const char* name, int64_t N, int64_t C, bool aligned, T* out, bool add, AddRow add_row) {
  constexpr int kWidth = kWidthOf<T>;
  constexpr int64_t kThreads = 131072, kMinRows = 8;  // enough to fill a device; a part's sum is worth writing
  if (C == 0) return;
  const int64_t pieces = ceil_div(C, kWidth);
  const int64_t most = std::max(
      std::min(ceil_div(N, kMinRows), kWorkspaceBytes / (C * static_cast<int64_t>(sizeof(float)))), int64_t{1});
  const int64_t rows = std::max(ceil_div(N, std::clamp(kThreads / pieces, int64_t{1}, most)), int64_t{1});
  const int64_t parts = ceil_div(N, rows);
  StreamState& state = current();
  auto* partial = reinterpret_cast<float*>(workspace(state));
  if (N > 0) {
    const dim3 block = block_of_rows(pieces);
    const dim3 grid(static_cast<unsigned>(ceil_div(pieces, block.x)), static_cast<unsigned>(ceil_div(parts, block.y)));
    with_bool(aligned, [&]<class Aligned>(Aligned) {
      partial_column_sums<kWidth, Aligned::value><<<grid, block, 0, state.stream>>>(N, C, rows, partial, add_row);
    });
    TRIREME_CUDA_LAUNCHED(name);
  }
  sum_parts<<<static_cast<unsigned>(ceil_div(C, 32)), dim3(32, kSumLanes), 0, state.stream>>>(parts, C, partial,
                                                                                              native(out), add);
  TRIREME_CUDA_LAUNCHED(name);
}

}  // namespace trireme::kernels::cuda
