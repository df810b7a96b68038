#include "kernels/cuda/random.cuh"
#include "kernels/cuda/vector.cuh"

namespace trireme::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// A thread takes those elements of a group of 64 whose words come from its kWidth blocks: kWidth neighbours in each of
// its four sixteens.
template <int kWidth, bool kAligned, class N>
__global__ void __launch_bounds__(kThreads, 3) drop(int64_t samples, int64_t n, DropoutRule rule, const N* x, N* y) {
  constexpr int kOfGroup = 16 / kWidth;  // threads
  const int64_t thread = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int place = static_cast<int>(thread % kOfGroup) * kWidth;
  const int64_t group = thread / kOfGroup, first = group * kDropoutGroup + place;
  if (first >= n) return;
  for (int64_t sample = blockIdx.y; sample < samples; sample += gridDim.y) {
    const N* from = x + sample * n + first;
    N* to = y + sample * n + first;
    Neighbours<N, kWidth> value[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) value[w] = load<kWidth, kAligned>(from + w * 16, n - first - w * 16);
    uint4 words[kWidth];
    if (rule.keys != nullptr) rule.draw(sample, group, place, words);
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      auto kept = floats(value[w]);
      if (rule.keys != nullptr) {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) {
          const std::uint32_t of_element[] = {words[i].x, words[i].y, words[i].z, words[i].w};
          kept.at[i] *= rule.factor_of(of_element[w]);
        }
      }
      store<kAligned>(to + w * 16, n - first - w * 16, kept);
    }
  }
}

}  // namespace

template <class T>
void dropout(int64_t B, int64_t n, const Dropout& dropout, const T* x, T* y) {
  constexpr int kWidth = kWidthOf<T>;
  if (B == 0 || n == 0) return;
  const int64_t threads = ceil_div(n, kDropoutGroup) * (16 / kWidth);
  const dim3 grid(static_cast<unsigned>(ceil_div(threads, kThreads)), static_cast<unsigned>(std::min(kMaxGridY, B)));
  with_bool(are_aligned<kWidth>(n, n, x, y), [&]<class Aligned>(Aligned) {
    drop<kWidth, Aligned::value>
        <<<grid, kThreads, 0, current().stream>>>(B, n, DropoutRule(dropout), native(x), native(y));
  });
  TRIREME_CUDA_LAUNCHED("dropout");
}

#define TRIREME_INSTANCES(T) template void dropout(int64_t, int64_t, const Dropout&, const T*, T*);
TRIREME_INSTANCES(float)
TRIREME_INSTANCES(bfloat16)
TRIREME_INSTANCES(float16)

}  // namespace trireme::kernels::cuda
