// Small things of a step that are the same in every type.
#include "kernels/cuda/kernel.cuh"

namespace trireme::kernels::cuda {
namespace {

__global__ void update(int count, const ExactSum* squares, double loss_scale, double max_norm, Update* update) {
  ExactSum all;
  for (int i = 0; i < count; ++i) all.add(squares[i]);
  const double sum = all.high - all.high == 0 ? all.high + all.low : all.high;
  const float norm = fabsf(static_cast<float>(sqrt(sum) / loss_scale));
  const bool finite = norm - norm == 0, clips = max_norm > 0 && norm > max_norm && finite;
  update->gradient_scale = (clips ? max_norm / (static_cast<double>(norm) + 1e-6) : 1.0) / loss_scale;
  update->skips = !finite;
}

__global__ void window(std::int64_t n, std::int64_t T, std::int64_t width, const std::int32_t* starts,
                       const std::int32_t* past, std::int32_t* out) {
  const std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x;
  if (i >= n) return;
  const std::int64_t first = (past == nullptr ? 0 : past[i / T]) + i % T - width + 1;
  const std::int64_t start = starts == nullptr ? 0 : starts[i];
  out[i] = static_cast<std::int32_t>(first > start ? first : start);
}

}  // namespace

void set_update(int count, const ExactSum* squares, double loss_scale, double max_norm, Update* result) {
  update<<<1, 1, 0, current().stream>>>(count, squares, loss_scale, max_norm, result);
  TRIREME_CUDA_LAUNCHED("set_update");
}

void first_in_window(std::int64_t B, std::int64_t T, std::int64_t width, const std::int32_t* starts,
                     const std::int32_t* past, std::int32_t* out) {
  constexpr int kThreads = 256;
  if (B * T == 0) return;
  window<<<static_cast<unsigned>(ceil_div(B * T, kThreads)), kThreads, 0, current().stream>>>(B * T, T, width, starts,
                                                                                              past, out);
  TRIREME_CUDA_LAUNCHED("first_in_window");
}

}  // namespace trireme::kernels::cuda
