// Kernels that work element by element.
#pragma once
#include "kernels/cuda/vector.cuh"

namespace trireme::kernels::cuda {

// out[i] = formula(in[i]...) in float, for n elements; out may be one of in.
template <int kWidth, bool kAligned, class Formula, class Out, class... In>
__global__ void map_kernel(int64_t n, Formula formula, Out* out, const In*... in) {
  constexpr int kPieces = 2;
  const int64_t first = (int64_t{blockIdx.x} * kPieces * blockDim.x + threadIdx.x) * kWidth;
  Floats<kWidth> x[kPieces][sizeof...(In)];
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    const int64_t i = first + piece * blockDim.x * kWidth;
    int of = 0;
    ((x[piece][of++] = load_floats<kWidth, kAligned>(in + i, n - i)), ...);
  }
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    const int64_t i = first + piece * blockDim.x * kWidth;
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

template <class Formula, class Out, class... In>
void map(const char* name, int64_t n, Formula formula, Out* out, const In*... in) {
  constexpr int kWidth = kWidthOf<Native<Out>, Native<In>...>, kThreads = 256;
  if (n == 0) return;
  with_bool(are_aligned<kWidth>(0, out, in...), [&]<class Aligned>(Aligned) {
    map_kernel<kWidth, Aligned::value>
        <<<static_cast<unsigned>(ceil_div(n, 2 * kWidth * kThreads)), kThreads, 0, current().stream>>>(
            n, formula, native(out), native(in)...);
  });
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
