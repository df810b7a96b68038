// Causal grouped-query attention on tensor cores, forward: a block takes 128 queries of a head, 32 a warp, against one
// tile of 64 keys and values after another (Dao 2023), while the next tile is on its way.
#include "kernels/cuda/attention_mma.cuh"
#include "kernels/cuda/vector.cuh"

namespace trireme::kernels::cuda {
namespace {

constexpr int kQueries = 128, kKeys = 64, kThreads = kQueries, kM = 2, kN = kKeys / 8;

// The softmax of a thread's rows so far, whose sums are its own columns' until the end.
struct Seen {
  float largest[kM][2], sum[kM][2];
};

// A row's largest lags until it is behind by this power of two: its weights stay far from what 16 bits hold, and sums
// need not shrink with each tile.
constexpr float kLag = 8;

// scores become 2^(factor * (score - largest)); where largest grows, what is there already shrinks.
template <int kD>
__device__ void take_scores(Sums<kM, kN>& scores, float factor, Seen& seen, Sums<kM, kD / 8>& out) {
  float top[kM][2];
  bool is_behind = false;
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      top[m][r] = fmaxf(scores[m][0][2 * r], scores[m][0][2 * r + 1]);
#pragma unroll
      for (int n = 1; n < kN; ++n) top[m][r] = fmaxf(top[m][r], fmaxf(scores[m][n][2 * r], scores[m][n][2 * r + 1]));
      top[m][r] = quad_max(top[m][r]);
      is_behind |= (top[m][r] - seen.largest[m][r]) * factor > kLag;
    }
  }
  if (__any_sync(0xffffffffu, is_behind) != 0) {
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float before = seen.largest[m][r], largest = fmaxf(before, top[m][r]);
        const float shrink = before == largest ? 1.0f : exp2_of((before - largest) * factor);
        seen.largest[m][r] = largest;
        seen.sum[m][r] *= shrink;
#pragma unroll
        for (int n = 0; n < kD / 8; ++n) {
          out[m][n][2 * r] *= shrink;
          out[m][n][2 * r + 1] *= shrink;
        }
      }
    }
  }
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const bool sees = seen.largest[m][r] != -__builtin_inff();
      const float shift = sees ? -seen.largest[m][r] * factor : 0.0f;
#pragma unroll
      for (int n = 0; n < kN; ++n) {
#pragma unroll
        for (int e = 2 * r; e < 2 * r + 2; ++e) {
          scores[m][n][e] = exp2_of(fmaf(scores[m][n][e], factor, shift));
          seen.sum[m][r] += scores[m][n][e];
        }
      }
    }
  }
}

// row: of the warp's first query among those of all heads.
__device__ void drop(const DropoutRule& rule, std::int64_t b, std::int64_t row, std::int64_t groups, int group,
                     Sums<kM, kN>& weights) {
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const std::int64_t at = row + m * 16 + e / 2 * 8 + lane_row();
        const float4 factors = rule.factors(b, at * groups + group, half * 8 + lane_column() + e % 2);
#pragma unroll
        for (int w = 0; w < 4; ++w) weights[m][2 * w + half][e] *= lane_of(factors, w);
      }
    }
  }
}

// kRich: with a soft cap or dropout.
template <class N, int kD, bool kRich>
__global__ void __launch_bounds__(kThreads, 2) forward_kernel(const __grid_constant__ Forward<N> f) {
  extern __shared__ __align__(16) unsigned char memory[];
  constexpr int kTileElements = kKeys * kMmaStride<kD>;
  N *queries = reinterpret_cast<N*>(memory), *tiles = queries + kQueries * kMmaStride<kD>;  // keys, values; twice
  __shared__ std::int32_t start_of[kQueries];
  const AttentionShape& s = f.s;
  const std::int64_t b = blockIdx.z, h = blockIdx.y;
  const int D = static_cast<int>(s.D), T = static_cast<int>(s.T);
  const int begin = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kQueries;  // the longest first
  const int past = f.past == nullptr ? 0 : f.past[b], end = past + min(begin + kQueries, T);
  const Matrix<const N> k = f.keys(b, h / (s.H / s.K)), v{k.rows + s.K * D, k.stride};
  const bool aligned = f.aligned && reinterpret_cast<std::uintptr_t>(k.rows) % 16 == 0;
  const float factor = kRich && f.scores.cap > 0 ? kLog2E : f.scores.scale * kLog2E;

  load_tile<kD, kQueries, kThreads>(queries, f.queries(b, h), begin, begin, T, D, f.aligned);
  const Sight sight = look(f.starts, b, begin, T, start_of);
  const int row = warp_id() * kWarp, position = past + begin + row;
  const auto load = [&](int tile, int stage) {
    N* keys = tiles + stage * 2 * kTileElements;
    load_tile<kD, kKeys, kThreads>(keys, k, tile, sight.first, end, D, aligned);
    load_tile<kD, kKeys, kThreads>(keys + kTileElements, v, tile, sight.first, end, D, aligned);
  };

  Seen seen;
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      seen.largest[m][r] = -__builtin_inff();
      seen.sum[m][r] = 0;
    }
  }
  Sums<kM, kD / 8> out;
  make_zero(out);
  int tile = sight.first / kKeys * kKeys, stage = 0;
  load(tile, stage);
  for (; tile < end; tile += kKeys, stage ^= 1) {
    wait_for_copies();
    __syncthreads();  // the tile is there, and the one before is done with
    if (tile + kKeys < end) load(tile + kKeys, stage ^ 1);
    if (tile >= position + kWarp || tile + kKeys <= sight.warp_first) continue;
    const N* keys = tiles + stage * 2 * kTileElements;

    Sums<kM, kN> p;
    multiply_rows<N, kD>(rows_first<kD>(queries + row * kMmaStride<kD>), columns_first<kD>(keys), p);
    if constexpr (kRich) {
      if (f.scores.cap > 0) {
#pragma unroll
        for (int i = 0; i < kM * kN * 4; ++i)
          p[i / 4 / kN][i / 4 % kN][i % 4] = capped(f.scores, p[i / 4 / kN][i / 4 % kN][i % 4]);
      }
    }
    if (tile + kKeys > position + 1 || tile < sight.warp_last) {
#pragma unroll
      for (int m = 0; m < kM; ++m) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int at = m * 16 + r * 8 + lane_row(), from = start_of[row + at] - tile, to = position + at - tile;
#pragma unroll
          for (int n = 0; n < kN; ++n) {
#pragma unroll
            for (int c = 0; c < 2; ++c) {
              const int column = n * 8 + lane_column() + c;
              if (column < from || column > to) p[m][n][2 * r + c] = -__builtin_inff();
            }
          }
        }
      }
    }
    take_scores<kD>(p, factor, seen, out);
    if constexpr (kRich) {
      if (f.dropout.keys != nullptr) {
        drop(f.dropout, b, h * T + begin + row, ceil_div(T, kDropoutGroup), tile / kKeys, p);
      }
    }
    add_weighted<N, kD>(rounded<N>(p), rows_first<kD>(keys + kTileElements), out);
  }

  float inverse[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float sum = quad_sum(seen.sum[m][r]);
      const int t = begin + row + m * 16 + r * 8 + lane_row();
      if (lane_column() == 0 && t < T) {
        const float largest = kRich && f.scores.cap > 0 ? seen.largest[m][r] : seen.largest[m][r] * f.scores.scale;
        f.lse[(b * s.H + h) * T + t] = largest + logf(sum);
      }
      inverse[m][r] = 1.0f / sum;
    }
  }
  store_rows(out, inverse, f.output(b, h), begin + row, T, D);
}

}  // namespace

template <class N>
void mma_attention_forward(const Forward<N>& f) {
  with_mma_head_size(f.s.D, [&]<int kD>(std::integral_constant<int, kD>) {
    with_bool(f.scores.cap > 0 || f.dropout.keys != nullptr, [&]<bool kRich>(std::bool_constant<kRich>) {
      const dim3 blocks(static_cast<unsigned>(ceil_div(f.s.T, kQueries)), static_cast<unsigned>(f.s.H),
                        static_cast<unsigned>(f.s.B));
      launch_tiles("attention_forward", forward_kernel<N, kD, kRich>, blocks, kThreads,
                   tile_bytes<kD>(kQueries + 4 * kKeys), f);
    });
  });
}
template void mma_attention_forward(const Forward<__nv_bfloat16>&);
template void mma_attention_forward(const Forward<__half>&);

}  // namespace trireme::kernels::cuda
