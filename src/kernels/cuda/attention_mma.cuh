// What attention's kernels on tensor cores are made of: tiles of 16-bit rows in shared memory, and products of what a
// warp has in registers with them, in fp32 (mma.sync m16n8k16). Of a 16 x 8 piece of a sum, lane 4 g + q has the
// columns 2 q and 2 q + 1 of the rows g and g + 8: element e of its four is in row g + e / 2 * 8, column 2 q + e % 2.
#pragma once
#include <climits>

#include "kernels/cuda/attention_arguments.cuh"
#include "kernels/cuda/copy_async.cuh"

namespace trireme::kernels::cuda {

constexpr int kWarp = 32;

__device__ inline int lane_id() {
  return static_cast<int>(threadIdx.x) % kWarp;
}
__device__ inline int warp_id() {
  return static_cast<int>(threadIdx.x) / kWarp;
}
__device__ inline int lane_row() {
  return lane_id() / 4;
}
__device__ inline int lane_column() {
  return lane_id() % 4 * 2;
}
// Over the four lanes that share rows.
__device__ inline float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}
__device__ inline float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

constexpr float kLog2E = 1.44269504088896341f;

__device__ inline float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// cap * tanh(product * inner), whose error is that of a number of cap's size.
__device__ inline float capped(const Scores& scores, float product) {
  float inverse;
  const float power = exp2_of(product * scores.inner * (2 * kLog2E));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(1.0f + power));
  return fmaf(-2.0f * scores.cap, inverse, scores.cap);
}

// Elements from row to row: 16 bytes more than a row has, so that eight rows' packs lie in different banks.
template <int kD>
constexpr int kMmaStride = kD + 8;
template <int kD>
constexpr int tile_bytes(int rows) {
  return rows * kMmaStride<kD> * 2;
}

// Row r of the tile is going to be row first + r of the matrix; what is not of [begin, end), and columns from D on,
// become zero.
template <int kD, int kRows, int kThreads, class N>
__device__ void load_tile(N* tile, Matrix<const N> matrix, int first, int begin, int end, int D, bool aligned) {
  if (aligned) {
    constexpr int kSize = Pack<N>::kSize, kAcross = kD % 64 == 0 ? 8 : 4, kDown = kThreads / kAcross;
    static_assert(kRows % kDown == 0 && kD % (kAcross * kSize) == 0);
    const int row = static_cast<int>(threadIdx.x) / kAcross, column = static_cast<int>(threadIdx.x) % kAcross * kSize;
    const N* from = matrix.rows + (first + row) * matrix.stride + column;
    N* to = tile + row * kMmaStride<kD> + column;
#pragma unroll
    for (int r = 0; r < kRows; r += kDown) {
      const bool is_there = first + row + r >= begin && first + row + r < end;
#pragma unroll
      for (int d = 0; d < kD; d += kAcross * kSize) {
        const bool is_copied = is_there && column + d < D;
        copy_async<16>(to + r * kMmaStride<kD> + d, is_copied ? from + d : matrix.rows, is_copied);
      }
      from += kDown * matrix.stride;
    }
    return;
  }
#pragma unroll 1
  for (int at = static_cast<int>(threadIdx.x); at < kRows * kD; at += kThreads) {
    const int r = at / kD, d = at % kD;
    const bool is_there = first + r >= begin && first + r < end && d < D;
    tile[r * kMmaStride<kD> + d] = is_there ? matrix.rows[(first + r) * matrix.stride + d] : from_float<N>(0.0f);
  }
}

// Addresses for ldmatrix of the 16 x 16 elements at a corner of a tile: in order of rows, then of columns; and the
// other way round.
template <int kD, class N>
__device__ std::uint32_t rows_first(const N* corner) {
  return shared_address(corner + lane_id() % 16 * kMmaStride<kD> + lane_id() / 16 * 8);
}
template <int kD, class N>
__device__ std::uint32_t columns_first(const N* corner) {
  return shared_address(corner + (lane_id() / 16 * 8 + lane_id() % 8) * kMmaStride<kD> + lane_id() / 8 % 2 * 8);
}
// Of the piece at a row and column behind an address.
template <int kD>
constexpr std::uint32_t piece_at(int row, int column) {
  return static_cast<std::uint32_t>(row * kMmaStride<kD> + column) * 2;
}

using Fragment = std::uint32_t[4];

__device__ inline void load_fragment(Fragment& x, std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(address));
}
__device__ inline void load_transposed(Fragment& x, std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(address));
}

// c += a @ b
template <class N>
__device__ void add_product(float (&c)[4], const Fragment& a, std::uint32_t b0, std::uint32_t b1) {
#define TRIREME_MMA(type)                                                    \
  asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                 \
      ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                       \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
  if constexpr (std::is_same_v<N, __half>) {
    TRIREME_MMA("f16");
  } else {
    TRIREME_MMA("bf16");
  }
#undef TRIREME_MMA
}

// A warp's sums: kM x kN pieces of 16 x 8.
template <int kM, int kN>
using Sums = float[kM][kN][4];

template <int kM, int kN>
__device__ void make_zero(float (&sums)[kM][kN][4]) {
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[m][n][e] = 0;
    }
  }
}

// = a @ b^T: products of whole rows. a is an address of rows_first, b of columns_first.
template <class N, int kD, int kM, int kN>
__device__ void multiply_rows(std::uint32_t a, std::uint32_t b, float (&sums)[kM][kN][4]) {
  make_zero(sums);
#pragma unroll
  for (int d = 0; d < kD; d += 16) {
    Fragment x[kM];
#pragma unroll
    for (int m = 0; m < kM; ++m) load_fragment(x[m], a + piece_at<kD>(m * 16, d));
#pragma unroll
    for (int n = 0; n < kN; n += 2) {
      Fragment y;
      load_fragment(y, b + piece_at<kD>(n * 8, d));
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        add_product<N>(sums[m][n], x[m], y[0], y[1]);
        add_product<N>(sums[m][n + 1], x[m], y[2], y[3]);
      }
    }
  }
}

// Rounded to N: the left side of a product.
template <int kM, int kN>
struct Weights {
  Fragment of[kM][kN / 2];
};
__device__ inline std::uint32_t rounded_pair(__half, float x, float y) {
  const __half2 pair = __floats2half2_rn(x, y);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}
__device__ inline std::uint32_t rounded_pair(__nv_bfloat16, float x, float y) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}
template <class N, int kM, int kN>
__device__ Weights<kM, kN> rounded(const float (&sums)[kM][kN][4]) {
  Weights<kM, kN> w;
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      w.of[m][n / 2][n % 2 * 2] = rounded_pair(N{}, sums[m][n][0], sums[m][n][1]);
      w.of[m][n / 2][n % 2 * 2 + 1] = rounded_pair(N{}, sums[m][n][2], sums[m][n][3]);
    }
  }
  return w;
}

// += weights @ b, whose columns are as many as those of the sums. b is an address of rows_first.
template <class N, int kD, int kM, int kN, int kColumns>
__device__ void add_weighted(const Weights<kM, kN>& weights, std::uint32_t b, float (&sums)[kM][kColumns][4]) {
#pragma unroll
  for (int j = 0; j < kN / 2; ++j) {
#pragma unroll
    for (int n = 0; n < kColumns; n += 2) {
      Fragment y;
      load_transposed(y, b + piece_at<kD>(j * 16, n * 8));
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        add_product<N>(sums[m][n], weights.of[m][j], y[0], y[1]);
        add_product<N>(sums[m][n + 1], weights.of[m][j], y[2], y[3]);
      }
    }
  }
}

// Of two neighbouring warps.
__device__ inline void synchronize_pair() {
  asm volatile("bar.sync %0, 64;" ::"r"(1 + warp_id() / 2) : "memory");
}
// Weights for the neighbouring warp, and its own, by way of `places` in shared memory for all warps of the block.
template <int kM, int kN>
__device__ void tell(const Weights<kM, kN>& weights, uint4* places) {
  synchronize_pair();  // what lay there has been read
#pragma unroll
  for (int i = 0; i < kM * kN / 2; ++i) {
    const Fragment& x = weights.of[i / (kN / 2)][i % (kN / 2)];
    places[(warp_id() * kM * kN / 2 + i) * kWarp + lane_id()] = {x[0], x[1], x[2], x[3]};
  }
}
template <int kM, int kN>
__device__ Weights<kM, kN> heard(const uint4* places) {
  synchronize_pair();
  Weights<kM, kN> weights;
#pragma unroll
  for (int i = 0; i < kM * kN / 2; ++i) {
    const uint4 x = places[((warp_id() ^ 1) * kM * kN / 2 + i) * kWarp + lane_id()];
    Fragment& y = weights.of[i / (kN / 2)][i % (kN / 2)];
    y[0] = x.x;
    y[1] = x.y;
    y[2] = x.z;
    y[3] = x.w;
  }
  return weights;
}

// The warp's rows times their factors (of the rows g and g + 8 of each piece) become the rows of a matrix from `first`
// on, up to end.
template <class N, int kM, int kN>
__device__ void store_rows(const float (&sums)[kM][kN][4], const float (&factors)[kM][2], Matrix<N> matrix, int first,
                           int end, int D) {
  const bool in_pairs = D % 2 == 0 && reinterpret_cast<std::uintptr_t>(matrix.rows) % 4 == 0;
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int t = first + m * 16 + r * 8 + lane_row();
      if (t >= end) continue;
      N* row = matrix.rows + t * matrix.stride;
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        const int d = n * 8 + lane_column();
        const float x = sums[m][n][2 * r] * factors[m][r], y = sums[m][n][2 * r + 1] * factors[m][r];
        if (in_pairs) {
          if (d < D) *reinterpret_cast<std::uint32_t*>(row + d) = rounded_pair(N{}, x, y);
        } else {
          if (d < D) row[d] = from_float<N>(x);
          if (d + 1 < D) row[d + 1] = from_float<N>(y);
        }
      }
    }
  }
}

// What a block's kQueries positions from `begin` on see first; a warp has 32 of them, a thread one.
struct Sight {
  int first, warp_first, warp_last;  // the first of all, and the first and last of the warp's
};
template <int kQueries>
__device__ Sight look(const std::int32_t* starts, std::int64_t sequence, int begin, int T,
                      std::int32_t (&start_of)[kQueries]) {
  __shared__ std::int32_t firsts[kQueries / kWarp];
  const int t = begin + static_cast<int>(threadIdx.x);
  const std::int32_t start = t < T ? first_seen(starts, sequence * T + t) : INT_MAX;
  start_of[threadIdx.x] = start;
  Sight sight;
  sight.warp_first = __reduce_min_sync(0xffffffffu, start);
  sight.warp_last = __reduce_max_sync(0xffffffffu, t < T ? start : 0);
  if (lane_id() == 0) firsts[warp_id()] = sight.warp_first;
  __syncthreads();
  sight.first = firsts[0];
#pragma unroll
  for (int i = 1; i < kQueries / kWarp; ++i) sight.first = min(sight.first, firsts[i]);
  return sight;
}

// step(std::integral_constant<int, kD>{}) with the least kD that there are kernels for.
template <class Step>
void with_mma_head_size(std::int64_t D, Step step) {
  if (D <= 64) return step(std::integral_constant<int, 64>{});
  if (D <= 96) return step(std::integral_constant<int, 96>{});
  step(std::integral_constant<int, kMmaMaxD>{});
}

}  // namespace trireme::kernels::cuda
