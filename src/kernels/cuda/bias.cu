#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/map.cuh"

namespace trireme::kernels::cuda {
namespace {

template <class N>
struct AddBias {
  int64_t C;
  const N* b;
  const N* addend;
  N* y;
  template <int kWidth, bool kAligned>
  __device__ void operator()(int64_t n, int64_t c) const {
    const int64_t at = n * C + c;
    auto sum = load_floats<kWidth, kAligned>(b + c, C - c);
    if (addend != nullptr) {
      const auto value = load_floats<kWidth, kAligned>(addend + at, C - c);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sum.at[i] += value.at[i];
    }
    store<kAligned>(y + at, C - c, sum);
  }
};

// partial[part][C] = the sum of rows part, part + parts, ...
template <int kWidth, bool kAligned, class N>
__global__ void partial_column_sums(int64_t rows, int64_t C, int64_t parts, const N* x, float* partial) {
  constexpr int kUnroll = 8;
  const int64_t c = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kWidth;
  const int64_t part = int64_t{blockIdx.y} * blockDim.y + threadIdx.y;
  if (c >= C || part >= parts) return;
  Floats<kWidth> sum = {};
  const auto add = [&](const Neighbours<N, kWidth>& row) {
    const auto values = floats(row);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sum.at[i] += values.at[i];
  };
  int64_t n = part;
  for (; n + (kUnroll - 1) * parts < rows; n += kUnroll * parts) {
    Neighbours<N, kWidth> row[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) row[u] = load<kWidth, kAligned>(x + (n + u * parts) * C + c, C - c);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) add(row[u]);
  }
  for (; n < rows; n += parts) add(load<kWidth, kAligned>(x + n * C + c, C - c));
  store<false>(partial + part * C + c, C - c, sum);
}

}  // namespace

template <class T>
void bias_forward(int64_t N, int64_t C, const T* b, const T* addend, T* y) {
  constexpr int kWidth = kWidthOf<T>;
  for_each_in_rows<kWidth>("bias_forward", N, C, are_aligned<kWidth>(C, C, b, addend, y),
                           AddBias<Native<T>>{C, native(b), native(addend), native(y)});
}

template <class T>
void bias_backward(int64_t N, int64_t C, const T* dy, T* db, bool add) {
  constexpr int kWidth = kWidthOf<T>;
  constexpr int64_t kThreads = kFillingMultiprocessors * 512, kMinRows = 8;  // a part's sum is worth writing
  if (C == 0) return;
  const int64_t pieces = ceil_div(C, kWidth);
  const int64_t fit = kWorkspaceBytes / (C * static_cast<int64_t>(sizeof(float)));
  const int64_t parts =
      std::min(ceil_div(N, kMinRows), std::clamp(kThreads / pieces, int64_t{1}, std::max(fit, int64_t{1})));
  auto* partial = reinterpret_cast<float*>(workspace(current()));
  if (N > 0) {
    const dim3 block = block_of_rows(pieces);
    const dim3 grid(static_cast<unsigned>(ceil_div(pieces, block.x)), static_cast<unsigned>(ceil_div(parts, block.y)));
    with_bool(are_aligned<kWidth>(C, C, dy), [&]<class Aligned>(Aligned) {
      partial_column_sums<kWidth, Aligned::value>
          <<<grid, block, 0, current().stream>>>(N, C, parts, native(dy), partial);
    });
    TRIREME_CUDA_LAUNCHED("bias_backward");
  }
  add_partial_sums<Native<T>>("bias_backward", parts, C, partial, {ColumnSum<Native<T>>{native(db), add}});
}

#define TRIREME_INSTANCES(T)                                            \
  template void bias_forward(int64_t, int64_t, const T*, const T*, T*); \
  template void bias_backward(int64_t, int64_t, const T*, T*, bool);
TRIREME_INSTANCES(float)
TRIREME_INSTANCES(bfloat16)
TRIREME_INSTANCES(float16)

}  // namespace trireme::kernels::cuda
