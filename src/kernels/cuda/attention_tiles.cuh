// What attention's kernels are made of: products of tiles of 64 rows in shared memory by 256 threads, in fp32. Thread
// (ty, tx) of 16 x 16 has the rows ty, ty + 16, ... and columns tx, tx + 16, ... of a tile of scores, and so all four
// words of a block of dropout's random numbers.
#pragma once
#include <algorithm>

#include "base/error.h"
#include "kernels/cuda/attention_arguments.cuh"
#include "kernels/cuda/fused_attention.h"

namespace trireme::kernels::cuda {

constexpr int kTile = 64, kTileThreads = 256, kSide = 16, kEach = kTile / kSide;
constexpr int kWeightStride = kTile + 4;  // 4 floats on, so that neighbouring rows lie in other banks
constexpr int kWeightFloats = kTile * kWeightStride;
template <int kD>
constexpr int kRowStride = kD + 4;
template <int kD>
constexpr int kTileFloats = kTile* kRowStride<kD>;

__device__ inline int tile_row(int i) {
  return static_cast<int>(threadIdx.x) / kSide + i * kSide;
}
__device__ inline int tile_column(int k) {
  return static_cast<int>(threadIdx.x) % kSide + k * kSide;
}
// Over the 16 threads that share rows.
__device__ inline float row_sum(float x) {
  for (int width = kSide / 2; width > 0; width /= 2) x += __shfl_xor_sync(0xffffffffu, x, width);
  return x;
}
__device__ inline float row_max(float x) {
  for (int width = kSide / 2; width > 0; width /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, width));
  return x;
}
// Row r of the tile is row first + r of the matrix; what is not of [begin, end), and columns from D on, become zero.
template <int kD, class N>
__device__ void fill_tile(float* tile, Matrix<const N> matrix, std::int64_t first, std::int64_t begin, std::int64_t end,
                          int D, bool aligned) {
  constexpr int kSize = Pack<N>::kSize, kPacks = kD / kSize;
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kPacks; i += kTileThreads) {
    const int r = i / kPacks, d = i % kPacks * kSize;
    Pack<N> pack{};
    if (first + r >= begin && first + r < end) {
      const N* p = matrix.rows + (first + r) * matrix.stride + d;
      if (aligned && d + kSize <= D) {
        pack = load_pack(p);
      } else {
#pragma unroll
        for (int e = 0; e < kSize; ++e) {
          if (d + e < D) pack.element[e] = p[e];
        }
      }
    }
#pragma unroll
    for (int e = 0; e < kSize; e += 4) {
      *reinterpret_cast<float4*>(tile + r * kRowStride<kD> + d + e) = {
          to_float(pack.element[e]), to_float(pack.element[e + 1]), to_float(pack.element[e + 2]),
          to_float(pack.element[e + 3])};
    }
  }
}

// c[i][k] = the product of a's row and b's row, the column.
template <int kD>
__device__ void multiply_rows(const float* a, const float* b, float (&c)[kEach][kEach]) {
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
#pragma unroll
    for (int k = 0; k < kEach; ++k) c[i][k] = 0;
  }
#pragma unroll 4
  for (int d = 0; d < kD; d += 4) {
    float4 x[kEach], y[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      x[i] = *reinterpret_cast<const float4*>(a + tile_row(i) * kRowStride<kD> + d);
      y[i] = *reinterpret_cast<const float4*>(b + tile_column(i) * kRowStride<kD> + d);
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
      for (int k = 0; k < kEach; ++k) {
        c[i][k] = fmaf(x[i].x, y[k].x, c[i][k]);
        c[i][k] = fmaf(x[i].y, y[k].y, c[i][k]);
        c[i][k] = fmaf(x[i].z, y[k].z, c[i][k]);
        c[i][k] = fmaf(x[i].w, y[k].w, c[i][k]);
      }
    }
  }
}

// Sums of whole rows: of each of its rows a thread has four columns in every 64, from 4 tx on.
template <int kD>
struct Sums {
  static constexpr int kParts = kD / 64;
  float of[kEach][kParts][4] = {};

  // += weights @ b
  __device__ void add_product(const float* weights, const float* b) {
#pragma unroll 2
    for (int j = 0; j < kTile; j += 4) {
      float4 w[kEach];
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        w[i] = *reinterpret_cast<const float4*>(weights + tile_row(i) * kWeightStride + j);
      }
#pragma unroll
      for (int l = 0; l < 4; ++l) {
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
          const float4 x =
              *reinterpret_cast<const float4*>(b + (j + l) * kRowStride<kD> + part * 64 + tile_column(0) * 4);
#pragma unroll
          for (int i = 0; i < kEach; ++i) {
#pragma unroll
            for (int e = 0; e < 4; ++e) of[i][part][e] = fmaf(lane_of(w[i], l), lane_of(x, e), of[i][part][e]);
          }
        }
      }
    }
  }
  __device__ void scale(int i, float factor) {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
#pragma unroll
      for (int e = 0; e < 4; ++e) of[i][part][e] *= factor;
    }
  }
  // Row r of the tile becomes row first + r of the matrix, up to end.
  template <class N>
  __device__ void store(Matrix<N> matrix, std::int64_t first, std::int64_t end, int D) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (first + tile_row(i) >= end) continue;
      N* row = matrix.rows + (first + tile_row(i)) * matrix.stride;
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int d = part * 64 + tile_column(0) * 4 + e;
          if (d < D) row[d] = from_float<N>(of[i][part][e]);
        }
      }
    }
  }
};

// kernel<kD> for the least kD that D fits into, which each has its registers.
template <class Step>
void with_head_size(std::int64_t D, Step step) {
  TRIREME_CHECK(D <= 256, "attention on a device knows heads of up to 256 elements");
  if (D <= 64) return step(std::integral_constant<int, 64>{});
  if (D <= 128) return step(std::integral_constant<int, 128>{});
  step(std::integral_constant<int, 256>{});
}

// Whether rows of heads may be read in packs: those of qkv, or of outputs, or of a cache.
template <class N>
bool heads_are_aligned(std::int64_t D, std::initializer_list<const N*> arrays) {
  return D % Pack<N>::kSize == 0 && std::all_of(arrays.begin(), arrays.end(), [](const N* p) { return is_aligned(p); });
}

}  // namespace trireme::kernels::cuda
