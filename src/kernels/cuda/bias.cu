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

constexpr int kRowLanes = 16;      // threads of a block that share columns (threadIdx.y)
constexpr int kBlocksThatFit = 2;  // on a multiprocessor

// partial[part][C] = the sum of the rows that the part's threads take, every `step`-th each.
template <int kWidth, bool kAligned, class N>
__global__ void __launch_bounds__(32 * kRowLanes, kBlocksThatFit)
    partial_column_sums(int64_t rows, int64_t C, int64_t step, const N* x, float* partial) {
  constexpr int kUnroll = 4;
  __shared__ Floats<kWidth> of_lane[kRowLanes][32];
  const int64_t c = (int64_t{blockIdx.x} * 32 + threadIdx.x) * kWidth;
  Floats<kWidth> sum = {};
  const auto add = [&](const Floats<kWidth>& values) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sum.at[i] += values.at[i];
  };
  let_next_kernel_start();
  for (int64_t n = int64_t{blockIdx.y} * kRowLanes + threadIdx.y; n < rows; n += kUnroll * step) {
    Neighbours<N, kWidth> row[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int64_t one = n + u * step;
      row[u] = load<kWidth, kAligned>(x + one * C + c, one < rows ? C - c : 0);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) add(floats(row[u]));
  }
  of_lane[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  constexpr int kColumns = 32 * kWidth;
  const int64_t first = int64_t{blockIdx.x} * kColumns;
  sum_groups<kRowLanes, kColumns, 32 * kRowLanes>(reinterpret_cast<const float*>(of_lane),
                                                  static_cast<int>(threadIdx.y * 32 + threadIdx.x), C - first,
                                                  partial + blockIdx.y * C + first);
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
  constexpr int64_t kBlocks = kBlocksThatFit * kFillingMultiprocessors;
  if (C == 0) return;
  const int64_t columns = ceil_div(C, 32 * kWidth);
  const int64_t fit = kWorkspaceBytes / (C * static_cast<int64_t>(sizeof(float)));
  const int64_t most = std::max(std::min({kBlocks / columns, fit, kMaxGridY}), int64_t{1});
  const int64_t parts = std::min(ceil_div(N, kRowLanes), most);
  auto* partial = reinterpret_cast<float*>(workspace(current()));
  if (N > 0) {
    const dim3 grid(static_cast<unsigned>(columns), static_cast<unsigned>(parts));
    with_bool(are_aligned<kWidth>(C, C, dy), [&]<class Aligned>(Aligned) {
      partial_column_sums<kWidth, Aligned::value>
          <<<grid, dim3(32, kRowLanes), 0, current().stream>>>(N, C, parts * kRowLanes, native(dy), partial);
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
