// How threads share a run of elements that goes through a norm, and what each holds of it.
#pragma once
#include "base/error.h"
#include "kernels/cuda/column_sums.cuh"

namespace trireme::kernels::cuda {

// The threads of a run (threadIdx.x): 8, 16 or 32 of a warp, or a block; each holds kHeld times its width of it. 0: the
// run is too long for that, and is read again.
template <int threads, int held>
struct Group {
  static constexpr int kThreads = threads, kHeld = held, kSlots = std::max(held, 1);
  static constexpr int kRuns = threads < 128 ? 128 / threads : 1;  // of a block (threadIdx.y)
  static constexpr bool kReadsAhead = held >= 1 && held <= 3;      // the run behind this one; more does not fit
  static constexpr int kBlockThreads = threads * kRuns;

  // Every thread gets the sums over its group; all threads of the block take part. turn: how many sums came before.
  template <int n>
  __device__ static void sum(float (&x)[n], int turn) {
#pragma unroll
    for (int i = 0; i < n; ++i) {
#pragma unroll
      for (int width = std::min(kThreads, 32) / 2; width > 0; width /= 2)
        x[i] += __shfl_xor_sync(0xffffffffu, x[i], width);
    }
    if constexpr (kThreads > 32) {
      constexpr int kWarps = kThreads / 32;
      __shared__ alignas(16) float of_warp[2][n][kWarps];  // two: the sums before may still be read
      if (threadIdx.x % 32 == 0) {
#pragma unroll
        for (int i = 0; i < n; ++i) of_warp[turn % 2][i][threadIdx.x / 32] = x[i];
      }
      __syncthreads();
#pragma unroll
      for (int i = 0; i < n; ++i) {
        x[i] = 0;
#pragma unroll
        for (int warp = 0; warp < kWarps; ++warp) x[i] += of_warp[turn % 2][i][warp];
      }
    }
  }

  // step(i, c): the thread's i-th elements of a run are those from c on.
  template <int kWidth, class Step>
  __device__ static void for_each(int C, Step step) {
    if constexpr (kHeld > 0) {
#pragma unroll
      for (int i = 0; i < kHeld; ++i) step(i, (i * kThreads + static_cast<int>(threadIdx.x)) * kWidth);
    } else {
      for (int c = static_cast<int>(threadIdx.x) * kWidth; c < C; c += kThreads * kWidth) step(0, c);
    }
  }
};

// step(Group<..>{}) with one for runs of C elements.
template <int kWidth, bool kGradients, class Step>
void with_group(int64_t C, Step step) {
  const int64_t pieces = ceil_div(C, kWidth);
  if (pieces <= 8) return step(Group<8, 1>{});
  if (pieces <= 16) return step(Group<16, 1>{});
  if (pieces <= 64) return step(Group<32, 2>{});
  if (pieces <= 96) return step(std::conditional_t<kGradients, Group<96, 1>, Group<32, 3>>{});
  if (pieces <= 128) return step(Group<128, 1>{});
  if (pieces <= 256) return step(Group<128, 2>{});
  if (pieces <= 384) return step(Group<192, 2>{});
  if (pieces <= 512) return step(Group<256, 2>{});
  if (pieces <= 1024) return step(Group<512, 2>{});
  if (pieces <= 2048) return step(Group<512, 4>{});
  step(Group<1024, 0>{});
}

// What a thread holds of a run.
template <class G, class N, int kWidth, bool kAligned>
struct Held {
  const N* run;
  int C;
  Neighbours<N, kWidth> piece[G::kSlots];

  __device__ void read(const N* from, int size) {
    run = from;
    C = size;
    if constexpr (G::kHeld > 0) {
      G::template for_each<kWidth>(C, [&](int i, int c) { piece[i] = load<kWidth, kAligned>(run + c, C - c); });
    }
  }
  // From here on what was made of the pieces is made again: held in registers it would be twice as much.
  __device__ void forget() {
    if constexpr (G::kHeld > 0) {
#pragma unroll
      for (auto& one : piece) {
#pragma unroll
        for (std::uint32_t& word : one.word) asm volatile("" : "+r"(word));
      }
    }
  }
  __device__ Floats<kWidth> get(int i, int c) const {
    if constexpr (G::kHeld > 0) return floats(piece[i]);
    return load_floats<kWidth, kAligned>(run + c, C - c);
  }
};

}  // namespace trireme::kernels::cuda
