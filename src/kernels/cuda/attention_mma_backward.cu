// Causal grouped-query attention on tensor cores, backward: the gradient of 128 queries against all keys that they see,
// then that of 128 keys and values against all queries that see them, of one head that shares them after another.
// Nothing is added up across blocks, so sums have one order.
#include "kernels/cuda/attention_mma.cuh"
#include "kernels/cuda/vector.cuh"

namespace trireme::kernels::cuda {
namespace {

// The deltas of that many rows of heads, 16 threads a row.
template <class N>
__global__ void __launch_bounds__(256) delta_kernel(const __grid_constant__ Backward<N> f, std::int64_t rows) {
  constexpr int kThreads = 16, kSize = kMmaMaxD / kThreads;
  const std::int64_t n = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / kThreads;
  float sum = 0;
  if (n < rows) {
    const std::int64_t t = n % f.s.T, pair = f.first + n / f.s.T / f.shared();
    const std::int64_t b = pair / f.s.K, h = pair % f.s.K * f.shared() + n / f.s.T % f.shared();
    const Matrix<const N> out = f.output(f.out, b, h), dout = f.output(f.dout, b, h);
    const int d = static_cast<int>(threadIdx.x) % kThreads * kSize, left = static_cast<int>(f.s.D) - d;
    const N *x = out.rows + t * out.stride + d, *y = dout.rows + t * dout.stride + d;
    const auto add = [&]<bool kAligned>(std::bool_constant<kAligned>) {
      const auto a = load_floats<kSize, kAligned>(x, left), c = load_floats<kSize, kAligned>(y, left);
#pragma unroll
      for (int i = 0; i < kSize; ++i) sum = fmaf(a.at[i], c.at[i], sum);
    };
    f.aligned ? add(std::true_type{}) : add(std::false_type{});
  }
#pragma unroll
  for (int width = kThreads / 2; width > 0; width /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, width);
  if (n < rows && threadIdx.x % kThreads == 0) f.deltas[n] = sum;
}

// What becomes of the product of a query and a key. slope: of the score by the product, without the scale, which
// gradients get when they are stored.
template <bool kRich>
struct Element {
  const Scores& scores;
  float factor;
  __device__ explicit Element(const Scores& s) : scores(s), factor(is_capped() ? kLog2E : s.scale * kLog2E) {}
  __device__ bool is_capped() const { return kRich && scores.cap > 0; }
  __device__ float score(float product) const { return is_capped() ? capped(scores, product) : product; }
  __device__ float weight(float score, float lse) const { return exp2_of(fmaf(score, factor, -lse * kLog2E)); }
  __device__ float slope(float score) const {
    const float tangent = score * scores.inverse_cap;
    return is_capped() ? fmaf(-tangent, tangent, 1.0f) : 1.0f;
  }
};

constexpr int kRows = 128;  // of queries or keys that a block has

template <int kD>
struct QueryShape {
  static constexpr int kThreads = 128, kM = 2, kKeys = kD <= 64 ? 64 : 32, kN = kKeys / 8;
  static constexpr int kBytes = tile_bytes<kD>(2 * kRows + 4 * kKeys);
};

template <class N, int kD, bool kRich>
__global__ void __launch_bounds__(QueryShape<kD>::kThreads, 2) query_kernel(const __grid_constant__ Backward<N> f) {
  using Shape = QueryShape<kD>;
  constexpr int kThreads = Shape::kThreads, kM = Shape::kM, kN = Shape::kN, kKeys = Shape::kKeys;
  constexpr int kTileElements = kKeys * kMmaStride<kD>;
  extern __shared__ __align__(16) unsigned char memory[];
  N *queries = reinterpret_cast<N*>(memory), *douts = queries + kRows * kMmaStride<kD>;
  N* tiles = douts + kRows * kMmaStride<kD>;  // keys, values; twice
  __shared__ std::int32_t start_of[kRows];
  const AttentionShape& s = f.s;
  const int D = static_cast<int>(s.D), T = static_cast<int>(s.T), shared = static_cast<int>(f.shared());
  const std::int64_t pair = f.first + blockIdx.y / shared, b = pair / s.K, kv = pair % s.K;
  const std::int64_t h = kv * shared + blockIdx.y % shared;
  const int begin = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kRows, end = min(begin + kRows, T);
  const Matrix<const N> k = f.head(f.qkv, b, s.H + kv), v = f.head(f.qkv, b, s.H + s.K + kv);
  load_tile<kD, kRows, kThreads>(queries, f.head(f.qkv, b, h), begin, begin, T, D, f.aligned);
  load_tile<kD, kRows, kThreads>(douts, f.output(f.dout, b, h), begin, begin, T, D, f.aligned);
  const Sight sight = look(f.starts, b, begin, T, start_of);
  const int row = warp_id() * kWarp, position = begin + row;
  const auto load = [&](int tile, int stage) {
    N* keys = tiles + stage * 2 * kTileElements;
    load_tile<kD, kKeys, kThreads>(keys, k, tile, sight.first, end, D, f.aligned);
    load_tile<kD, kKeys, kThreads>(keys + kTileElements, v, tile, sight.first, end, D, f.aligned);
  };
  int tile = sight.first / kKeys * kKeys, stage = 0;
  load(tile, stage);

  const Element<kRich> element(f.scores);
  float lse[kM][2], delta[kM][2], scale[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int t = position + m * 16 + r * 8 + lane_row();
      lse[m][r] = t < T ? f.lse[(b * s.H + h) * T + t] : 0.0f;
      delta[m][r] = t < T ? f.deltas[std::int64_t{blockIdx.y} * T + t] : 0.0f;
      scale[m][r] = f.scores.scale;
    }
  }
  Sums<kM, kD / 8> dq;
  make_zero(dq);
  for (; tile < end; tile += kKeys, stage ^= 1) {
    wait_for_copies();
    __syncthreads();  // the tile is there, and the one before is done with
    if (tile + kKeys < end) load(tile + kKeys, stage ^ 1);
    if (tile >= position + kWarp || tile + kKeys <= sight.warp_first) continue;
    const N *keys = tiles + stage * 2 * kTileElements, *values = keys + kTileElements;
    const bool is_masked = tile + kKeys > position + 1 || tile < sight.warp_last;

    Sums<kM, kN> p, gradient;
    multiply_rows<N, kD>(rows_first<kD>(queries + row * kMmaStride<kD>), columns_first<kD>(keys), p);
    multiply_rows<N, kD>(rows_first<kD>(douts + row * kMmaStride<kD>), columns_first<kD>(values), gradient);
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int r = e / 2, at = m * 16 + r * 8 + lane_row();
        if constexpr (kRich) {
          if (f.dropout.keys != nullptr) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
              const float4 factors =
                  f.dropout.factors(b, f.group(h, position + at, tile), half * 8 + lane_column() + e % 2);
#pragma unroll
              for (int w = 0; w < kN / 2; ++w) {
                gradient[m][2 * w + half][e] *= lane_of(factors, tile % kDropoutGroup / 16 + w);
              }
            }
          }
        }
#pragma unroll
        for (int n = 0; n < kN; ++n) {
          const float score = element.score(p[m][n][e]);
          p[m][n][e] = element.weight(score, lse[m][r]) * (gradient[m][n][e] - delta[m][r]) * element.slope(score);
        }
        if (is_masked) {
          const int from = start_of[row + at] - tile, to = position + at - tile;
#pragma unroll
          for (int n = 0; n < kN; ++n) {
            const int column = n * 8 + lane_column() + e % 2;
            if (column < from || column > to) p[m][n][e] = 0;
          }
        }
      }
    }
    add_weighted<N, kD>(rounded<N>(p), rows_first<kD>(keys), dq);
  }
  store_rows(dq, scale, f.head(f.dqkv, b, h), position, T, D);
}

// A warp has 32 keys. The sums of their gradients would not fit into its registers with heads of more than 64 elements:
// there two warps share keys. Each has half of a tile's queries, tells the other the weights that it found, and has the
// sums of half of the columns.
template <int kD>
struct KeyShape {
  static constexpr int kHalves = kD <= 64 ? 1 : 2, kThreads = kRows * kHalves, kQueries = 32 * kHalves;
  static constexpr int kM = 2, kN = 32 / 8, kColumns = kD / kHalves;
  static constexpr int kPlaces = kHalves == 1 ? 0 : kThreads / kWarp * kM * kN / 2 * kWarp;
  static constexpr int kBytes = tile_bytes<kD>(2 * kRows + 4 * kQueries) + kPlaces * 16;
};

// The last position that sees one of the keys before `end`, from `begin` on, and 0 if none does.
template <int kThreads>
__device__ int last_that_sees(const std::int32_t* starts, int begin, int end, int T) {
  if (starts == nullptr) return T - 1;
  __shared__ int of_warp[kThreads / kWarp];
  int last = 0;
#pragma unroll 4
  for (int t = begin + static_cast<int>(threadIdx.x); t < T; t += kThreads) last = starts[t] < end ? t : last;
  last = __reduce_max_sync(0xffffffffu, last);
  if (lane_id() == 0) of_warp[warp_id()] = last;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kThreads / kWarp; ++i) last = max(last, of_warp[i]);
  return last;
}

// Which of a tile's weights dropout keeps: bit w of the byte at a query and a place is that of the key w * 16 + place
// of a group of 64. The words of one random block are of four warps.
template <int kQueries>
using Kept = std::uint8_t[kRows / kDropoutGroup][kQueries][16];

template <class N, int kQueries, int kThreads>
__device__ void draw(const Backward<N>& f, std::int64_t b, std::int64_t h, int begin, int tile, Kept<kQueries>& kept) {
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < kRows / kDropoutGroup * kQueries * 16; i += kThreads) {
    const int place = i % 16, query = i / 16 % kQueries, part = i / 16 / kQueries;
    const float4 x = f.dropout.factors(b, f.group(h, tile + query, begin + part * kDropoutGroup), place);
    kept[part][query][place] =
        static_cast<std::uint8_t>((x.x != 0) | (x.y != 0) << 1 | (x.z != 0) << 2 | (x.w != 0) << 3);
  }
}

template <class N, int kD, bool kRich>
__global__ void __launch_bounds__(KeyShape<kD>::kThreads, kD <= 64 ? 2 : 1)
    key_kernel(const __grid_constant__ Backward<N> f) {
  using Shape = KeyShape<kD>;
  constexpr int kThreads = Shape::kThreads, kM = Shape::kM, kN = Shape::kN, kQueries = Shape::kQueries;
  constexpr int kTileElements = kQueries * kMmaStride<kD>, kWarpRows = kM * 16;
  constexpr int kHalves = Shape::kHalves, kColumns = Shape::kColumns;
  extern __shared__ __align__(16) unsigned char memory[];
  N *keys = reinterpret_cast<N*>(memory), *values = keys + kRows * kMmaStride<kD>;
  N* tiles = values + kRows * kMmaStride<kD>;  // queries, gradients of the output; twice
  auto* places = reinterpret_cast<uint4*>(tiles + 4 * kTileElements);
  __shared__ std::int32_t starts_of[2][kQueries];
  __shared__ float lses[2][kQueries], deltas[2][kQueries];
  __shared__ Kept<kRich ? kQueries : 1> kept;
  const AttentionShape& s = f.s;
  const int D = static_cast<int>(s.D), T = static_cast<int>(s.T), shared = static_cast<int>(f.shared());
  const std::int64_t pair = f.first + blockIdx.y, b = pair / s.K, kv = pair % s.K;
  const int begin = static_cast<int>(blockIdx.x) * kRows, row = warp_id() / kHalves * kWarpRows;
  const int position = begin + row, half = warp_id() % kHalves, mine = half * 32, others = 32 - mine;
  const std::int32_t* starts = f.starts == nullptr ? nullptr : f.starts + b * T;
  load_tile<kD, kRows, kThreads>(keys, f.head(f.qkv, b, s.H + kv), begin, begin, T, D, f.aligned);
  load_tile<kD, kRows, kThreads>(values, f.head(f.qkv, b, s.H + s.K + kv), begin, begin, T, D, f.aligned);
  const auto load = [&](int shares, int tile, int stage) {
    const std::int64_t h = kv * shared + shares;
    N* queries = tiles + stage * 2 * kTileElements;
    load_tile<kD, kQueries, kThreads>(queries, f.head(f.qkv, b, h), tile, begin, T, D, f.aligned);
    load_tile<kD, kQueries, kThreads>(queries + kTileElements, f.output(f.dout, b, h), tile, begin, T, D, f.aligned);
    if (threadIdx.x < kQueries) {
      const int t = tile + static_cast<int>(threadIdx.x), there = t < T ? t : 0;
      copy_async<4>(&lses[stage][threadIdx.x], f.lse + (b * s.H + h) * T + there, t < T);
      copy_async<4>(&deltas[stage][threadIdx.x], f.deltas + (std::int64_t{blockIdx.y} * shared + shares) * T + there,
                    t < T);
      if (starts != nullptr) copy_async<4>(&starts_of[stage][threadIdx.x], starts + there, t < T);
    }
  };
  if (starts == nullptr && threadIdx.x < 2 * kQueries) starts_of[threadIdx.x / kQueries][threadIdx.x % kQueries] = 0;
  load(0, begin, 0);
  const int last = last_that_sees<kThreads>(starts, begin, min(begin + kRows, T), T);

  const Element<kRich> element(f.scores);
  Sums<kM, kColumns / 8> dk, dv;
  make_zero(dk);
  make_zero(dv);
  for (int shares = 0, tile = begin, stage = 0; shares < shared; stage ^= 1) {
    const int now = tile, h = static_cast<int>(kv) * shared + shares;
    tile += kQueries;
    if (tile > last) {
      tile = begin;
      ++shares;
    }
    wait_for_copies();
    __syncthreads();  // the tile is there, and the one before is done with
    if (shares < shared) load(shares, tile, stage ^ 1);
    if constexpr (kRich) {
      if (f.dropout.keys != nullptr) {
        draw<N, kQueries, kThreads>(f, b, h, begin, now, kept);
        __syncthreads();
      }
    }
    int first_start = 0, last_start = 0;
    if (starts != nullptr) {
      const int x = starts_of[stage][lane_id()], y = starts_of[stage][kQueries - kWarp + lane_id()];
      first_start = __reduce_min_sync(0xffffffffu, min(x, y));
      last_start = __reduce_max_sync(0xffffffffu, max(x, y));
    }
    if (now + kQueries <= position || first_start >= position + kWarpRows) {
      if constexpr (kHalves == 2) {
        for (int i = 0; i < 4; ++i) synchronize_pair();  // tell and heard, twice: racecheck would lose count
      }
      continue;
    }
    const bool is_masked = now < position + kWarpRows - 1 || last_start > position;
    const N *queries = tiles + stage * 2 * kTileElements, *douts = queries + kTileElements;

    Sums<kM, kN> scores, weights;
    multiply_rows<N, kD>(rows_first<kD>(keys + row * kMmaStride<kD>),
                         columns_first<kD>(queries + mine * kMmaStride<kD>), scores);
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int n = 0; n < kN; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          scores[m][n][e] = element.score(scores[m][n][e]);
          weights[m][n][e] = element.weight(scores[m][n][e], lses[stage][mine + n * 8 + lane_column() + e % 2]);
        }
      }
      if (is_masked) {
#pragma unroll
        for (int n = 0; n < kN; ++n) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int column = mine + n * 8 + lane_column() + e % 2, j = position + m * 16 + e / 2 * 8 + lane_row();
            const bool is_seen = (j <= now + column) & (j >= starts_of[stage][column]);
            weights[m][n][e] = is_seen ? weights[m][n][e] : 0.0f;
          }
        }
      }
    }
    // What dropout multiplies a weight by.
    const auto kept_factor = [&](int m, int n, int e) {
      if (!kRich || f.dropout.keys == nullptr) return 1.0f;
      const int j = row + m * 16, place = e / 2 * 8 + lane_row();
      const int bits = kept[j / kDropoutGroup][mine + n * 8 + lane_column() + e % 2][place];
      return (bits >> (j % kDropoutGroup / 16) & 1) != 0 ? f.dropout.factor : 0.0f;
    };
    const auto add = [&](const Weights<kM, kN>& w, const N* tile, Sums<kM, kColumns / 8>& sums) {
      const N* columns = tile + half * kColumns;
      if constexpr (kHalves == 2) tell(w, places);
      add_weighted<N, kD>(w, rows_first<kD>(columns + mine * kMmaStride<kD>), sums);
      if constexpr (kHalves == 2) {
        add_weighted<N, kD>(heard<kM, kN>(places), rows_first<kD>(columns + others * kMmaStride<kD>), sums);
      }
    };
    {
      Sums<kM, kN> dropped;
#pragma unroll
      for (int i = 0; i < kM * kN * 4; ++i) {
        const int m = i / 4 / kN, n = i / 4 % kN, e = i % 4;
        dropped[m][n][e] = weights[m][n][e] * kept_factor(m, n, e);
      }
      add(rounded<N>(dropped), douts, dv);
    }
    Sums<kM, kN> gradient;
    multiply_rows<N, kD>(rows_first<kD>(values + row * kMmaStride<kD>),
                         columns_first<kD>(douts + mine * kMmaStride<kD>), gradient);
#pragma unroll
    for (int i = 0; i < kM * kN * 4; ++i) {
      const int m = i / 4 / kN, n = i / 4 % kN, e = i % 4;
      const float delta = deltas[stage][mine + n * 8 + lane_column() + e % 2];
      gradient[m][n][e] =
          weights[m][n][e] * (gradient[m][n][e] * kept_factor(m, n, e) - delta) * element.slope(scores[m][n][e]);
    }
    add(rounded<N>(gradient), queries, dk);
  }
  float one[kM][2], scale[kM][2];
#pragma unroll
  for (int i = 0; i < 2 * kM; ++i) {
    one[i / 2][i % 2] = 1;
    scale[i / 2][i % 2] = f.scores.scale;
  }
  const auto columns = [&](std::int64_t head) {
    const Matrix<N> all = f.head(f.dqkv, b, head);
    return Matrix<N>{all.rows + half * kColumns, all.stride};
  };
  store_rows(dk, scale, columns(s.H + kv), position, T, D - half * kColumns);
  store_rows(dv, one, columns(s.H + s.K + kv), position, T, D - half * kColumns);
}

}  // namespace

template <class N>
void mma_attention_backward(const Backward<N>& f, std::int64_t pairs) {
  const std::int64_t rows = pairs * f.shared() * f.s.T;
  delta_kernel<<<static_cast<unsigned>(ceil_div(rows, 16)), 256, 0, current().stream>>>(f, rows);
  TRIREME_CUDA_LAUNCHED("attention_backward");
  with_mma_head_size(f.s.D, [&]<int kD>(std::integral_constant<int, kD>) {
    with_bool(f.scores.cap > 0 || f.dropout.keys != nullptr, [&]<bool kRich>(std::bool_constant<kRich>) {
      const auto tiles = static_cast<unsigned>(ceil_div(f.s.T, kRows));
      const dim3 queries(tiles, static_cast<unsigned>(pairs * f.shared())), keys(tiles, static_cast<unsigned>(pairs));
      launch_tiles("attention_backward", query_kernel<N, kD, kRich>, queries, QueryShape<kD>::kThreads,
                   QueryShape<kD>::kBytes, f);
      launch_tiles("attention_backward", key_kernel<N, kD, kRich>, keys, KeyShape<kD>::kThreads, KeyShape<kD>::kBytes,
                   f);
    });
  });
}
template void mma_attention_backward(const Backward<__nv_bfloat16>&, std::int64_t);
template void mma_attention_backward(const Backward<__half>&, std::int64_t);

}  // namespace trireme::kernels::cuda
