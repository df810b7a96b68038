#include "kernels/cuda/random.cuh"
#include "kernels/cuda/vector.cuh"

namespace trireme::kernels::cuda {
namespace {

constexpr int kThreads = 128, kPieces = 4;  // of a thread

// A thread takes pieces of kWidth neighbours, a block of threads apart. The threads whose pieces are a group of 64
// share the words that four of them need: each draws a quarter, and says of each word whether it keeps the element.
template <int kWidth, bool kAligned, class N>
__global__ void __launch_bounds__(kThreads, 6) drop(int64_t samples, int64_t n, DropoutRule rule, const N* x, N* y) {
  constexpr int kOfSixteen = 16 / kWidth, kOfGroup = 4 * kOfSixteen, kOwn = kWidth / 4;  // threads; blocks of words
  const int64_t piece = int64_t{blockIdx.x} * kThreads * kPieces + threadIdx.x;
  const int me = static_cast<int>(threadIdx.x) % kOfGroup, sixteen = me / kOfSixteen;
  const int place = me % kOfSixteen * kWidth + sixteen * kOwn;
  for (int64_t sample = blockIdx.y; sample < samples; sample += gridDim.y) {
    Neighbours<N, kWidth> value[kPieces];
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      const int64_t i = (piece + p * kThreads) * kWidth;
      value[p] = load<kWidth, kAligned>(x + sample * n + i, n - i);
    }
    std::uint32_t kept[kPieces];  // bit 4 * e: element e
#pragma unroll
    for (std::uint32_t& bits : kept) bits = ~0u;
    if (rule.keys != nullptr) {
#pragma unroll
      for (int p = 0; p < kPieces; ++p) {
        const int64_t group = (piece + p * kThreads) / kOfGroup;
        kept[p] = rule.kept<kOwn>(sample, group, place) << (sixteen * kOwn * 4);
        kept[p] |= __shfl_xor_sync(~0u, kept[p], kOfSixteen);
        kept[p] |= __shfl_xor_sync(~0u, kept[p], 2 * kOfSixteen);
        kept[p] >>= sixteen;
      }
    }
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      const int64_t i = (piece + p * kThreads) * kWidth;
      auto values = floats(value[p]);
#pragma unroll
      for (int e = 0; e < kWidth; ++e) values.at[e] *= (kept[p] >> (4 * e) & 1) != 0 ? rule.factor : 0.0f;
      store<kAligned>(y + sample * n + i, n - i, values);
    }
  }
}

}  // namespace

template <class T>
void dropout(int64_t B, int64_t n, const Dropout& dropout, const T* x, T* y) {
  constexpr int kWidth = kWidthOf<T>;
  if (B == 0 || n == 0) return;
  const dim3 grid(static_cast<unsigned>(ceil_div(n, kThreads * kPieces * kWidth)),
                  static_cast<unsigned>(std::min(kMaxGridY, B)));
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
