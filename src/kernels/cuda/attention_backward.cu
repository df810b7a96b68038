// Causal grouped-query attention, backward: cuDNN's, or on tensor cores that of attention_mma_backward.cu, where they
// know the question; else in fp32: the gradient of 64 queries against all keys that they see, then that of 64 keys and
// values against all queries that see them, of one head that shares them after another. Nothing is added up across
// blocks, so sums have one order.
#include <climits>

#include "kernels/cuda/attention_tiles.cuh"

namespace trireme::kernels::cuda {
namespace {

template <int kD, class N>
__global__ void __launch_bounds__(kTileThreads) query_kernel(const __grid_constant__ Backward<N> f) {
  extern __shared__ __align__(16) float shared[];
  float *queries = shared, *douts = queries + kTileFloats<kD>, *keys = douts + kTileFloats<kD>;
  float* weights = keys + kTileFloats<kD>;
  __shared__ std::int32_t start_of[kTile];
  const AttentionShape& s = f.s;
  const int D = static_cast<int>(s.D);
  const std::int64_t pair = f.first + blockIdx.y / f.shared(), b = pair / s.K, kv = pair % s.K;
  const std::int64_t h = kv * f.shared() + blockIdx.y % f.shared();
  const std::int64_t begin = (gridDim.x - 1 - blockIdx.x) * std::int64_t{kTile}, end = min(begin + kTile, s.T);
  const Matrix<const N> k = f.head(f.qkv, b, s.H + kv), v = f.head(f.qkv, b, s.H + s.K + kv);
  const Matrix<const N> out = f.output(f.out, b, h);

  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x < kTile) {
    const std::int64_t t = begin + threadIdx.x;
    start_of[threadIdx.x] = t < s.T ? first_seen(f.starts, b * s.T + t) : INT_MAX;
  }
  fill_tile<kD>(queries, f.head(f.qkv, b, h), begin, begin, s.T, D, f.aligned);
  fill_tile<kD>(douts, f.output(f.dout, b, h), begin, begin, s.T, D, f.aligned);
  __syncthreads();
  const std::int64_t first_key = __reduce_min_sync(0xffffffffu, min(start_of[lane], start_of[lane + 32]));

  float delta[kEach], lse[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const std::int64_t t = begin + tile_row(i);
    float sum = 0;
    for (int d = tile_column(0); d < D && t < s.T; d += kSide) {
      sum = fmaf(douts[tile_row(i) * kRowStride<kD> + d], to_float(out.rows[t * out.stride + d]), sum);
    }
    delta[i] = row_sum(sum);
    lse[i] = t < s.T ? f.lse[(b * s.H + h) * s.T + t] : 0.0f;
    if (tile_column(0) == 0 && t < s.T) f.deltas[blockIdx.y * s.T + t] = delta[i];
  }
  Sums<kD> dq;
  for (std::int64_t tile = first_key / kTile * kTile; tile < end; tile += kTile) {
    float product[kEach][kEach], gradient[kEach][kEach];
    __syncthreads();
    fill_tile<kD>(keys, v, tile, first_key, end, D, f.aligned);
    __syncthreads();
    multiply_rows<kD>(douts, keys, gradient);
    __syncthreads();
    fill_tile<kD>(keys, k, tile, first_key, end, D, f.aligned);
    __syncthreads();
    multiply_rows<kD>(queries, keys, product);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const std::int64_t t = begin + tile_row(i);
      float4 factors{1, 1, 1, 1};
      if (f.dropout.keys != nullptr) factors = f.dropout.factors(b, f.group(h, t, tile), tile_column(0));
#pragma unroll
      for (int c = 0; c < kEach; ++c) {
        const std::int64_t j = tile + tile_column(c);
        const float score = f.scores.of(product[i][c]);
        const float p = j >= start_of[tile_row(i)] && j <= t ? expf(score - lse[i]) : 0.0f;
        const float d = p * fmaf(gradient[i][c], lane_of(factors, c), -delta[i]) * f.scores.slope(score);
        weights[tile_row(i) * kWeightStride + tile_column(c)] = d;
      }
    }
    __syncwarp();  // a row's weights are of this half warp
    dq.add_product(weights, keys);
  }
  dq.store(f.head(f.dqkv, b, h), begin, s.T, D);
}

template <int kD, class N>
__global__ void __launch_bounds__(kTileThreads) key_kernel(const __grid_constant__ Backward<N> f) {
  extern __shared__ __align__(16) float shared[];
  float *keys = shared, *values = keys + kTileFloats<kD>, *others = values + kTileFloats<kD>;
  float* weights = others + kTileFloats<kD>;
  __shared__ std::int32_t start_of[kTile];
  __shared__ float lse_of[kTile], delta_of[kTile];
  const AttentionShape& s = f.s;
  const int D = static_cast<int>(s.D);
  const std::int64_t pair = f.first + blockIdx.y, b = pair / s.K, kv = pair % s.K;
  const std::int64_t begin = blockIdx.x * std::int64_t{kTile}, end = min(begin + kTile, s.T);
  fill_tile<kD>(keys, f.head(f.qkv, b, s.H + kv), begin, begin, end, D, f.aligned);
  fill_tile<kD>(values, f.head(f.qkv, b, s.H + s.K + kv), begin, begin, end, D, f.aligned);

  Sums<kD> dk, dv;
  for (std::int64_t shares = 0; shares < f.shared(); ++shares) {
    const std::int64_t h = kv * f.shared() + shares;
    const Matrix<const N> q = f.head(f.qkv, b, h), dout = f.output(f.dout, b, h);
    for (std::int64_t tile = begin; tile < s.T; tile += kTile) {
      __syncthreads();
      bool sees = false;
      if (threadIdx.x < kTile) {
        const std::int64_t t = tile + threadIdx.x;
        const bool is_there = t < s.T;
        start_of[threadIdx.x] = is_there ? first_seen(f.starts, b * s.T + t) : INT_MAX;
        lse_of[threadIdx.x] = is_there ? f.lse[(b * s.H + h) * s.T + t] : 0.0f;
        delta_of[threadIdx.x] = is_there ? f.deltas[(blockIdx.y * f.shared() + shares) * s.T + t] : 0.0f;
        sees = start_of[threadIdx.x] < end;
      }
      if (__syncthreads_or(sees) == 0) continue;
      float p[kEach][kEach], gradient[kEach][kEach], slope[kEach][kEach];
      fill_tile<kD>(others, q, tile, tile, s.T, D, f.aligned);
      __syncthreads();
      multiply_rows<kD>(keys, others, p);
      __syncthreads();
      fill_tile<kD>(others, dout, tile, tile, s.T, D, f.aligned);
      __syncthreads();
      multiply_rows<kD>(values, others, gradient);
#pragma unroll
      for (int c = 0; c < kEach; ++c) {
        const int column = tile_column(c);
        const std::int64_t t = tile + column;
        float4 factors{1, 1, 1, 1};
        if (f.dropout.keys != nullptr) factors = f.dropout.factors(b, f.group(h, t, begin), tile_row(0));
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
          const std::int64_t j = begin + tile_row(i);
          const float score = f.scores.of(p[i][c]), factor = lane_of(factors, i);
          p[i][c] = j >= start_of[column] && j <= t ? expf(score - lse_of[column]) : 0.0f;
          slope[i][c] = p[i][c] * fmaf(gradient[i][c], factor, -delta_of[column]) * f.scores.slope(score);
          weights[tile_row(i) * kWeightStride + column] = p[i][c] * factor;
        }
      }
      __syncwarp();
      dv.add_product(weights, others);
      __syncthreads();
      fill_tile<kD>(others, q, tile, tile, s.T, D, f.aligned);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
#pragma unroll
        for (int c = 0; c < kEach; ++c) weights[tile_row(i) * kWeightStride + tile_column(c)] = slope[i][c];
      }
      __syncthreads();
      dk.add_product(weights, others);
    }
  }
  dk.store(f.head(f.dqkv, b, s.H + kv), begin, s.T, D);
  dv.store(f.head(f.dqkv, b, s.H + s.K + kv), begin, s.T, D);
}

}  // namespace

template <class T>
void attention_backward(const AttentionShape& shape, const Dropout& dropout, const T* qkv, const std::int32_t* starts,
                        const T* out, const Acc<T>* lse, const T* dout, T* dqkv, void* workspace) {
  using N = Native<T>;
  if (shape.B == 0 || shape.T == 0) return;
  if constexpr (sizeof(T) == 2) {
    if (is_fused(shape, dtype_of<T>, dropout, starts)) {
      return fused_attention_backward(shape, dtype_of<T>, qkv, out, lse, dout, dqkv, workspace);
    }
  }
  const std::int64_t shared = shape.H / shape.K, pairs = shape.B * shape.K;
  auto* deltas = reinterpret_cast<float*>(cuda::workspace(current()));
  const std::int64_t fit = kWorkspaceBytes / (shared * shape.T * static_cast<std::int64_t>(sizeof(float)));
  const std::int64_t most = std::min<std::int64_t>(fit, 65'535 / shared);  // a grid's rows
  TRIREME_CHECK(most > 0, "attention's backward over so long a sequence does not fit into a stream's memory");
  Backward<N> f{shape,
                Scores(shape),
                DropoutRule(dropout),
                native(qkv),
                starts,
                native(out),
                lse,
                native(dout),
                native(dqkv),
                deltas,
                0,
                heads_are_aligned(shape.D, {native(qkv), native(out), native(dout)})};
  for (; f.first < pairs; f.first += most) {
    const std::int64_t count = std::min(most, pairs - f.first);
    if constexpr (sizeof(T) == 2) {
      if (shape.D <= kMmaMaxD) {
        mma_attention_backward(f, count);
        continue;
      }
    }
    with_head_size(shape.D, [&]<int kD>(std::integral_constant<int, kD>) {
      constexpr int kBytes = (3 * kTileFloats<kD> + kWeightFloats) * static_cast<int>(sizeof(float));
      const auto tiles = static_cast<unsigned>(ceil_div(shape.T, kTile));
      const dim3 queries(tiles, static_cast<unsigned>(count * shared)), keys(tiles, static_cast<unsigned>(count));
      launch_tiles("attention_backward", query_kernel<kD, N>, queries, kTileThreads, kBytes, f);
      launch_tiles("attention_backward", key_kernel<kD, N>, keys, kTileThreads, kBytes, f);
    });
  }
}

#define TRIREME_INSTANCES(T)                                                                                       \
  template void attention_backward(const AttentionShape&, const Dropout&, const T*, const std::int32_t*, const T*, \
                                   const Acc<T>*, const T*, T*, void*);
TRIREME_INSTANCES(float)
TRIREME_INSTANCES(bfloat16)
TRIREME_INSTANCES(float16)

}  // namespace trireme::kernels::cuda
