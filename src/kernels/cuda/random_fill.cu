// Initial weights, drawn where they are.
#include "base/random_formulas.h"
#include "kernels/cuda/kernel.cuh"
#include "kernels/cuda/tables.h"

namespace trireme::kernels::cuda {
namespace {

template <class N>
__global__ void fill(NormalRows d, N* out) {
  namespace formulas = random_formulas;
  const std::int64_t c = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x;
  if (c >= d.columns) return;
  for (std::int64_t r = blockIdx.y; r < d.rows; r += gridDim.y) {
    const std::uint64_t index = d.first + static_cast<std::uint64_t>(r * d.pitch + c);
    const formulas::Words words = formulas::philox(d.seed, d.stream, index >> 1);
    const double p = formulas::to_uniform((index & 1) == 0 ? words.first : words.second);
    out[r * d.stride + c] = from_float<N>(static_cast<float>(d.mean + d.scale * formulas::quantile(p)));
  }
}

}  // namespace

void fill_normal_rows(const NormalRows& rows, DType dtype, void* out) {
  constexpr std::int64_t kThreads = 256, kMostRows = 65535;
  if (rows.rows == 0 || rows.columns == 0) return;
  const dim3 grid(static_cast<unsigned>(ceil_div(rows.columns, kThreads)),
                  static_cast<unsigned>(rows.rows < kMostRows ? rows.rows : kMostRows));
  const auto fill_with = [&]<class N>(N* typed) {
    fill<<<grid, static_cast<unsigned>(kThreads), 0, current().stream>>>(rows, typed);
  };
  if (dtype == DType::f32) {
    fill_with(static_cast<float*>(out));
  } else if (dtype == DType::bf16) {
    fill_with(static_cast<__nv_bfloat16*>(out));
  } else {
    fill_with(static_cast<__half*>(out));
  }
  TRIREME_CUDA_LAUNCHED("fill_normal_rows");
}

}  // namespace trireme::kernels::cuda
