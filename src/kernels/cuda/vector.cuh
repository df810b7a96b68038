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

template <int kWidth>
struct Floats {
  float at[kWidth];
};

// In words of 32 bits, as they are loaded: taken apart into single elements they would need a register each.
template <class N, int kWidth>
struct alignas(std::min(kWidth * sizeof(N), std::size_t{16})) Neighbours {
  static constexpr int kOfWord = 4 / static_cast<int>(sizeof(N)), kWords = kWidth / kOfWord;
  std::uint32_t word[kWords];
};

__device__ inline void unpack(std::uint32_t word, float (&x)[1], float) {
  x[0] = __uint_as_float(word);
}
__device__ inline void unpack(std::uint32_t word, float (&x)[2], __nv_bfloat16) {
  x[0] = __uint_as_float(word << 16);
  x[1] = __uint_as_float(word & 0xffff0000u);
}
__device__ inline void unpack(std::uint32_t word, float (&x)[2], __half) {
  const float2 both = __half22float2(*reinterpret_cast<const __half2*>(&word));
  x[0] = both.x;
  x[1] = both.y;
}
__device__ inline std::uint32_t pack(const float (&x)[1], float) {
  return __float_as_uint(x[0]);
}
__device__ inline std::uint32_t pack(const float (&x)[2], __nv_bfloat16) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(x[0], x[1]);
  return *reinterpret_cast<const std::uint32_t*>(&both);
}
__device__ inline std::uint32_t pack(const float (&x)[2], __half) {
  const __half2 both = __floats2half2_rn(x[0], x[1]);
  return *reinterpret_cast<const std::uint32_t*>(&both);
}

template <class N, int kWidth>
__device__ Floats<kWidth> floats(const Neighbours<N, kWidth>& x) {
  constexpr int kOfWord = Neighbours<N, kWidth>::kOfWord;
  Floats<kWidth> y;
#pragma unroll
  for (int i = 0; i < Neighbours<N, kWidth>::kWords; ++i) {
    float some[kOfWord];
    unpack(x.word[i], some, N{});
#pragma unroll
    for (int j = 0; j < kOfWord; ++j) y.at[i * kOfWord + j] = some[j];
  }
  return y;
}
template <class N, int kWidth>
__device__ Neighbours<N, kWidth> rounded(const Floats<kWidth>& x) {
  constexpr int kOfWord = Neighbours<N, kWidth>::kOfWord;
  Neighbours<N, kWidth> y;
#pragma unroll
  for (int i = 0; i < Neighbours<N, kWidth>::kWords; ++i) {
    float some[kOfWord];
#pragma unroll
    for (int j = 0; j < kOfWord; ++j) some[j] = x.at[i * kOfWord + j];
    y.word[i] = pack(some, N{});
  }
  return y;
}

// The elements at p; left: so many there are up to the row's end. Those beyond it are zero, and are not stored.
// kAligned: p is a multiple of 16 bytes, or of the piece's, and no row ends inside a piece. Aligned or not, a thread
// gets the same elements, so that sums do not depend on where an array begins.
template <int kWidth, bool kAligned, class N, class Int>
__device__ Neighbours<N, kWidth> load(const N* p, Int left) {
  using Bits = std::conditional_t<sizeof(N) == 2, std::uint16_t, std::uint32_t>;
  constexpr int kOfWord = Neighbours<N, kWidth>::kOfWord;
  Neighbours<N, kWidth> x = {};
  if constexpr (kAligned) {
    if (left > 0) x = *reinterpret_cast<const Neighbours<N, kWidth>*>(p);
  } else {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      if (i < left) {
        const std::uint32_t bits = reinterpret_cast<const Bits*>(p)[i];
        x.word[i / kOfWord] |= bits << (i % kOfWord * 16);
      }
    }
  }
  return x;
}
template <int kWidth, bool kAligned, class N, class Int>
__device__ Floats<kWidth> load_floats(const N* p, Int left) {
  return floats(load<kWidth, kAligned>(p, left));
}
template <bool kAligned, class N, class Int, int kWidth>
__device__ void store(N* p, Int left, const Floats<kWidth>& x) {
  if constexpr (kAligned) {
    if (left > 0) *reinterpret_cast<Neighbours<N, kWidth>*>(p) = rounded<N>(x);
  } else {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      if (i < left) p[i] = from_float<N>(x.at[i]);
    }
  }
}

// Whether kAligned may be said of rows of C elements that begin at these arrays and every `stride` elements behind.
template <int kWidth, class... N>
bool are_aligned(int64_t C, int64_t stride, const N*... arrays) {
  return C % kWidth == 0 && stride % kWidth == 0 &&
         ((reinterpret_cast<std::uintptr_t>(arrays) % alignof(Neighbours<N, kWidth>) == 0) && ...);
}

// step(std::bool_constant<value>{})
template <class Step>
void with_bool(bool value, Step step) {
  if (value) return step(std::true_type{});
  step(std::false_type{});
}

constexpr int64_t kMaxGridY = 65535;

// 256 threads: threadIdx.x goes over the pieces of a row, threadIdx.y over rows.
inline dim3 block_of_rows(int64_t pieces) {
  unsigned x = 1;
  while (x < 256 && x < pieces) x *= 2;
  return dim3(x, 256 / x);
}

}  // namespace trireme::kernels::cuda
