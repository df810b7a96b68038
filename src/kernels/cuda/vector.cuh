// Neighbouring elements that a thread takes at once, and threads that share a row.
#pragma once
#include <algorithm>
#include <type_traits>

#include "kernels/cuda/kernel.cuh"

namespace trireme::kernels::cuda {

using std::int32_t;
using std::int64_t;

// As many as fill 16 bytes of the widest type.
template <class... N>
constexpr int kWidthOf = 16 / static_cast<int>(std::max({sizeof(N)...}));

template <class N, int kWidth>
struct alignas(std::min(kWidth * sizeof(N), std::size_t{16})) Neighbours {
  N at[kWidth];
};
template <int kWidth>
struct Floats {
  float at[kWidth];
};

// The elements at p; left: so many there are up to the row's end. Those beyond it are zero, and are not stored. Aligned
// or not, a thread gets the same elements, so that sums do not depend on where an array begins.
template <int kWidth, bool kAligned, class N>
__device__ Neighbours<N, kWidth> load(const N* p, int64_t left) {
  Neighbours<N, kWidth> x;
  if (kAligned && left >= kWidth) return *reinterpret_cast<const Neighbours<N, kWidth>*>(p);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) x.at[i] = i < left ? p[i] : from_float<N>(0.0f);
  return x;
}
template <class N, int kWidth>
__device__ Floats<kWidth> floats(const Neighbours<N, kWidth>& x) {
  Floats<kWidth> y;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) y.at[i] = to_float(x.at[i]);
  return y;
}
template <int kWidth, bool kAligned, class N>
__device__ Floats<kWidth> load_floats(const N* p, int64_t left) {
  return floats(load<kWidth, kAligned>(p, left));
}
template <bool kAligned, class N, int kWidth>
__device__ void store(N* p, int64_t left, const Floats<kWidth>& x) {
  Neighbours<N, kWidth> y;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) y.at[i] = from_float<N>(x.at[i]);
  if (kAligned && left >= kWidth) {
    *reinterpret_cast<Neighbours<N, kWidth>*>(p) = y;
    return;
  }
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    if (i < left) p[i] = y.at[i];
  }
}

// Whether kAligned may be said of rows that begin at these arrays and every `stride` elements behind.
template <int kWidth, class... N>
bool are_aligned(int64_t stride, const N*... arrays) {
  return stride % kWidth == 0 && ((reinterpret_cast<std::uintptr_t>(arrays) % alignof(Neighbours<N, kWidth>) == 0) && ...);
}

// step(std::bool_constant<value>{})
template <class Step>
void with_bool(bool value, Step step) {
  if (value) return step(std::true_type{});
  step(std::false_type{});
}

// The threads of a row (threadIdx.x): 8, 16 or 32 of a warp, or a block; each holds kHeld times its width of it. 0: the
// row is too long for that, and is read again.
template <int threads, int held>
struct Group {
  static constexpr int kThreads = threads, kHeld = held;
  static constexpr int kRows = threads < 128 ? 128 / threads : 1;  // of a block (threadIdx.y)

  // Every thread gets the sum over its group; all threads of the block take part.
  __device__ static float sum(float x) {
    if constexpr (kThreads <= 32) {
#pragma unroll
      for (int width = kThreads / 2; width > 0; width /= 2) x += __shfl_xor_sync(0xffffffffu, x, width);
      return x;
    } else {
      __shared__ float of_warp[kThreads / 32];
      x = warp_sum(x);
      __syncthreads();  // the sum before may still be read
      if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
      __syncthreads();
      return warp_sum(threadIdx.x % 32 < kThreads / 32 ? of_warp[threadIdx.x % 32] : 0.0f);
    }
  }

  // step(i, c): the thread's i-th elements of a row are those from c on.
  template <int kWidth, class Step>
  __device__ static void for_each(int64_t C, Step step) {
    if constexpr (kHeld > 0) {
#pragma unroll
      for (int i = 0; i < kHeld; ++i) step(i, (int64_t{i} * kThreads + threadIdx.x) * kWidth);
    } else {
      for (int64_t c = threadIdx.x * kWidth; c < C; c += kThreads * kWidth) step(0, c);
    }
  }
};

// step(Group<..>{}) with one for rows of C elements.
template <int kWidth, class Step>
void with_group(int64_t C, Step step) {
  const int64_t pieces = ceil_div(C, kWidth);
  if (pieces <= 8) return step(Group<8, 1>{});
  if (pieces <= 16) return step(Group<16, 1>{});
  if (pieces <= 128) return step(Group<32, 4>{});
  if (pieces <= 512) return step(Group<128, 4>{});
  if (pieces <= 1024) return step(Group<256, 4>{});
  if (pieces <= 2048) return step(Group<512, 4>{});
  step(Group<1024, 0>{});
}

// What a thread holds of a row between two passes over it.
template <class G, class N, int kWidth, bool kAligned>
struct Held {
  const N* row;
  int64_t C;
  Neighbours<N, kWidth> piece[G::kHeld > 0 ? G::kHeld : 1];

  __device__ Held(const N* row, int64_t C) : row(row), C(C) {
    if constexpr (G::kHeld > 0) {
      G::template for_each<kWidth>(C, [&](int i, int64_t c) { piece[i] = load<kWidth, kAligned>(row + c, C - c); });
    }
  }
  __device__ Floats<kWidth> get(int i, int64_t c) const {
    if constexpr (G::kHeld > 0) return floats(piece[i]);
    return load_floats<kWidth, kAligned>(row + c, C - c);
  }
};

constexpr int64_t kMaxGridY = 65535;

// 256 threads: threadIdx.x goes over the pieces of a row, threadIdx.y over rows.
inline dim3 block_of_rows(int64_t pieces) {
  unsigned x = 1;
  while (x < 256 && x < pieces) x *= 2;
  return dim3(x, 256 / x);
}

}  // namespace trireme::kernels::cuda
