// How threads share a run of elements that goes through a norm, and what each holds of it.
#pragma once
#include "base/error.h"
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/copy_async.cuh"

namespace trireme::kernels::cuda {

// The threads of a run (threadIdx.x): 8, 16 or 32 of a warp, or whole warps; each holds kHeld times its width of it. 0:
// the run is too long for that, and is read again. runs: of a block (threadIdx.y).
template <int threads, int held, int runs = std::max(128 / threads, 1)>
struct Group {
  static constexpr int kThreads = threads, kHeld = held, kSlots = std::max(held, 1), kRuns = runs;
  static constexpr int kOfWarp = std::max(32 / threads, 1);    // runs
  static constexpr bool kReadsAhead = held >= 1 && held <= 3;  // the run behind this one; more does not fit
  static constexpr int kBlockThreads = threads * kRuns;

  __device__ static int thread() { return static_cast<int>(threadIdx.y * kThreads + threadIdx.x); }

  // Every thread gets the sums over its group, all of whose threads, and of their warps, take part. turn: how many sums
  // came before.
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
      struct alignas(16) Sums {
        float of[n][kWarps];
      };
      __shared__ Sums of_group[2][kRuns];  // two: the sums before may still be read
      Sums& sums = of_group[turn % 2][kRuns == 1 ? 0 : threadIdx.y];
      if (threadIdx.x % 32 == 0) {
#pragma unroll
        for (int i = 0; i < n; ++i) sums.of[i][threadIdx.x / 32] = x[i];
      }
      wait();
#pragma unroll
      for (int i = 0; i < n; ++i) {
        x[i] = 0;
#pragma unroll
        for (int warp = 0; warp < kWarps; ++warp) x[i] += sums.of[i][warp];
      }
    }
  }

  // For all threads of the group, which are whole warps.
  __device__ static void wait() {
    if constexpr (kRuns == 1) {
      __syncthreads();
    } else {
      static_assert(kRuns < 16, "a block has 16 barriers");
      asm volatile("bar.sync %0, %1;" ::"r"(1 + threadIdx.y), "n"(kThreads) : "memory");
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
template <int kWidth, class Step>
void with_group(int64_t C, Step step) {
  const int64_t pieces = ceil_div(C, kWidth);
  if (pieces <= 8) return step(Group<8, 1>{});
  if (pieces <= 16) return step(Group<16, 1>{});
  if (pieces <= 64) return step(Group<32, 2>{});
  if (pieces <= 96) return step(Group<32, 3>{});
  if (pieces <= 128) return step(Group<128, 1>{});
  if (pieces <= 256) return step(Group<128, 2>{});
  if (pieces <= 384) return step(Group<192, 2>{});
  if (pieces <= 512) return step(Group<256, 2>{});
  if (pieces <= 1024) return step(Group<512, 2>{});
  if (pieces <= 2048) return step(Group<512, 4>{});
  step(Group<1024, 0>{});
}
// The same for gradients: the blocks of a multiprocessor have as many threads as it has registers for, and several
// runs, one of which is read while another is added up.
template <int kWidth, bool kCentred, class Step>
void with_gradient_group(int64_t C, Step step) {
  constexpr int kMost = kCentred ? 384 : 512;  // threads of a block: sums of two kinds need more registers
  const int64_t pieces = ceil_div(C, kWidth);
  if (pieces <= 8) return step(Group<8, 1, kMost / 8>{});
  if (pieces <= 16) return step(Group<16, 1, kMost / 16>{});
  if (pieces <= 32) return step(Group<32, 1, kMost / 32>{});
  if (pieces <= 64) return step(Group<32, 2, 8>{});
  if (pieces <= 96) return step(Group<96, 1, kMost / 96>{});
  if (pieces <= 128) return step(Group<128, 1, kMost / 128>{});
  if (pieces <= 192) return step(Group<192, 1, 2>{});
  if (pieces <= 256) return step(std::conditional_t<kCentred, Group<128, 2, 2>, Group<256, 1, 2>>{});
  if (pieces <= 384) return step(Group<384, 1, 1>{});
  if (pieces <= 512) return step(std::conditional_t<kCentred, Group<256, 2, 1>, Group<512, 1, 1>>{});
  if (pieces <= 640 && !kCentred) return step(Group<320, 2, 1>{});
  if (pieces <= 1024) return step(Group<512, 2, 1>{});
  if (pieces <= 2048) return step(Group<512, 4, 1>{});
  step(Group<1024, 0, 1>{});
}
template <class G>
constexpr int kGradientBlocks = G::kSlots* G::kBlockThreads <= 640 ? 2 : 1;  // of a multiprocessor

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

// The thread's pieces of the next runs, where G reads ahead, in shared memory that it alone uses: it waits for no other
// thread.
template <class G, class N, int kWidth, bool kAligned>
struct Ahead {
  using Piece = Neighbours<N, kWidth>;
  static constexpr int kRuns = G::kReadsAhead ? 2 : 1, kPieces = G::kSlots * G::kBlockThreads;
  // Of a block, no more than the smallest device has; kWidth floats a thread fit too.
  static constexpr int bytes(int arrays) {
    return G::kReadsAhead ? arrays * kRuns * kPieces * 16 : G::kHeld * G::kBlockThreads * 16;
  }

  Piece* pieces;  // [array][run][slot][thread]

  __device__ Ahead(void* shared, int run) : pieces(static_cast<Piece*>(shared) + run * kPieces + G::thread()) {}
  __device__ Piece& at(int array, int i) const { return pieces[array * kRuns * kPieces + i * G::kBlockThreads]; }
  __device__ void fetch(int array, const N* from, int C) const {
    if constexpr (!G::kReadsAhead) return;
    G::template for_each<kWidth>(C, [&](int i, int c) {
      if constexpr (kAligned) {
        copy_async<16>(&at(array, i), from + c, c < C);
      } else {
        at(array, i) = load<kWidth, false>(from + c, C - c);
      }
    });
  }
  // Of what was fetched from there.
  __device__ void take(int array, const N* from, int C, Held<G, N, kWidth, kAligned>& to) const {
    if constexpr (!G::kReadsAhead) {
      to.read(from, C);
    } else {
#pragma unroll
      for (int i = 0; i < G::kSlots; ++i) to.piece[i] = at(array, i);
    }
  }
};

}  // namespace trireme::kernels::cuda
