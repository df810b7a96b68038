// Kernels that work element by element.
#pragma once
#include "kernels/cuda/vector.cuh"

namespace trireme::kernels::cuda {

constexpr int kMapThreads = 256, kMapPieces = 2;

template <int kWidth, bool kAligned, class Formula, class Out, class... In>
__device__ void map_tile(int64_t first, int64_t n, Formula formula, Out* out, const In*... in) {
  Floats<kWidth> x[kMapPieces][sizeof...(In)];
#pragma unroll
  for (int piece = 0; piece < kMapPieces; ++piece) {
    const int64_t i = first + (piece * kMapThreads + static_cast<int>(threadIdx.x)) * kWidth;
    int of = 0;
    ((x[piece][of++] = load_floats<kWidth, kAligned>(in + i, n - i)), ...);
  }
#pragma unroll
  for (int piece = 0; piece < kMapPieces; ++piece) {
    const int64_t i = first + (piece * kMapThreads + static_cast<int>(threadIdx.x)) * kWidth;
    Floats<kWidth> y;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      if constexpr (sizeof...(In) == 1) {
        y.at[j] = formula(x[piece][0].at[j]);
      } else {
        y.at[j] = formula(x[piece][0].at[j], x[piece][1].at[j]);
      }
    }
    store<kAligned>(out + i, n - i, y);
  }
}

// out[i] = formula(in[i]...) in float, for n elements; out may be one of in.
template <int kWidth, class Formula, class Out, class... In>
__global__ void __launch_bounds__(kMapThreads)
    map_kernel(int64_t n, bool aligned, Formula formula, Out* out, const In*... in) {
  constexpr int kTile = kMapPieces * kMapThreads * kWidth;
  const int64_t first = int64_t{blockIdx.x} * kTile;
  if (aligned && first + kTile <= n) return map_tile<kWidth, true>(first, first + kTile, formula, out, in...);
  map_tile<kWidth, false>(first, n, formula, out, in...);
}

template <class Formula, class Out, class... In>
void map(const char* name, int64_t n, Formula formula, Out* out, const In*... in) {
  constexpr int kWidth = kWidthOf<Native<Out>, Native<In>...>;
  if (n == 0) return;
  map_kernel<kWidth>
      <<<static_cast<unsigned>(ceil_div(n, kMapPieces * kMapThreads * kWidth)), kMapThreads, 0, current().stream>>>(
          n, are_aligned<kWidth>(0, 0, out, in...), formula, native(out), native(in)...);
  TRIREME_CUDA_LAUNCHED(name);
}

// step<kWidth, kAligned>(n, c): elements c .. c + kWidth of row n.
template <int kWidth, bool kAligned, class Step>
__global__ void rows_kernel(int64_t N, int64_t C, Step step) {
  const int64_t c = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kWidth;
  if (c >= C) return;
  for (int64_t n = int64_t{blockIdx.y} * blockDim.y + threadIdx.y; n < N; n += int64_t{gridDim.y} * blockDim.y) {
    step.template operator()<kWidth, kAligned>(n, c);
  }
}

template <int kWidth, class Step>
void for_each_in_rows(const char* name, int64_t N, int64_t C, bool aligned, Step step) {
  if (N == 0 || C == 0) return;
  const int64_t pieces = ceil_div(C, kWidth);
  const dim3 block = block_of_rows(pieces);
  const dim3 grid(static_cast<unsigned>(ceil_div(pieces, block.x)),
                  static_cast<unsigned>(std::min(kMaxGridY, ceil_div(N, block.y))));
  with_bool(aligned, [&]<class Aligned>(Aligned) {
    rows_kernel<kWidth, Aligned::value><<<grid, block, 0, current().stream>>>(N, C, step);
  });
  TRIREME_CUDA_LAUNCHED(name);
}

}  // namespace trireme::kernels::cuda
