// Causal grouped-query attention, forward: cuDNN's, or on tensor cores that of attention_mma_forward.cu, where they
// know the question; else in fp32, where a block takes 64 queries of a head against one tile of keys after another,
// with the softmax of what it has seen (Dao et al. 2022). Keys that no query of a block may see are not read.
#include <climits>

#include "kernels/cuda/attention_tiles.cuh"

namespace trireme::kernels::cuda {
namespace {

// The softmax of a thread's rows so far, whose sums are its own columns' until the end.
struct Seen {
  float largest[kEach], sum[kEach];
};

// scores become exp(score - largest), and what is there already shrinks with the new largest.
template <int kD>
__device__ void take_scores(float (&scores)[kEach][kEach], Seen& seen, Sums<kD>& out) {
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    float top = seen.largest[i];
#pragma unroll
    for (int k = 0; k < kEach; ++k) top = fmaxf(top, scores[i][k]);
    top = row_max(top);
    const float shift = top == -__builtin_inff() ? 0.0f : top;  // nothing visible yet
    const float shrink = expf(seen.largest[i] - shift);
    seen.largest[i] = top;
    seen.sum[i] *= shrink;
    out.scale(i, shrink);
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      scores[i][k] = expf(scores[i][k] - shift);
      seen.sum[i] += scores[i][k];
    }
  }
}

template <int kD, class N>
__global__ void __launch_bounds__(kTileThreads) forward_kernel(const __grid_constant__ Forward<N> f) {
  extern __shared__ __align__(16) float shared[];
  float *queries = shared, *keys = queries + kTileFloats<kD>, *weights = keys + kTileFloats<kD>;
  __shared__ std::int32_t start_of[kTile];
  const AttentionShape& s = f.s;
  const std::int64_t b = blockIdx.z, h = blockIdx.y, kv = h / (s.H / s.K);
  const int D = static_cast<int>(s.D);
  const std::int64_t begin = (gridDim.x - 1 - blockIdx.x) * std::int64_t{kTile};  // the longest first
  const std::int64_t past = f.past == nullptr ? 0 : f.past[b];
  const std::int64_t end = past + min(begin + kTile, s.T);
  const Matrix<const N> k = f.keys(b, kv);
  const Matrix<const N> v{k.rows + s.K * D, k.stride};
  const bool aligned = f.aligned && reinterpret_cast<std::uintptr_t>(k.rows) % 16 == 0;

  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x < kTile) {
    const std::int64_t t = begin + threadIdx.x;
    start_of[threadIdx.x] = t < s.T ? first_seen(f.starts, b * s.T + t) : INT_MAX;
  }
  fill_tile<kD>(queries, f.queries(b, h), begin, begin, s.T, D, f.aligned);
  __syncthreads();
  const std::int64_t first_key = __reduce_min_sync(0xffffffffu, min(start_of[lane], start_of[lane + 32]));

  Seen seen;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    seen.largest[i] = -__builtin_inff();
    seen.sum[i] = 0;
  }
  Sums<kD> out;
  for (std::int64_t tile = first_key / kTile * kTile; tile < end; tile += kTile) {
    float p[kEach][kEach];
    __syncthreads();
    fill_tile<kD>(keys, k, tile, first_key, end, D, aligned);
    __syncthreads();
    multiply_rows<kD>(queries, keys, p);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const std::int64_t t = past + begin + tile_row(i);
#pragma unroll
      for (int c = 0; c < kEach; ++c) {
        const std::int64_t j = tile + tile_column(c);
        p[i][c] = j >= start_of[tile_row(i)] && j <= t ? f.scores.of(p[i][c]) : -__builtin_inff();
      }
    }
    take_scores(p, seen, out);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      float4 factors{1, 1, 1, 1};
      if (f.dropout.keys != nullptr) {
        const std::int64_t row = h * s.T + begin + tile_row(i), groups = (s.T + kDropoutGroup - 1) / kDropoutGroup;
        factors = f.dropout.factors(b, row * groups + tile / kDropoutGroup, tile_column(0));
      }
#pragma unroll
      for (int c = 0; c < kEach; ++c) {
        weights[tile_row(i) * kWeightStride + tile_column(c)] = p[i][c] * lane_of(factors, c);
      }
    }
    __syncthreads();
    fill_tile<kD>(keys, v, tile, first_key, end, D, aligned);
    __syncthreads();
    out.add_product(weights, keys);
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const float sum = row_sum(seen.sum[i]);
    const std::int64_t t = begin + tile_row(i);
    if (tile_column(0) == 0 && t < s.T) {
      f.lse[(b * s.H + h) * s.T + t] = seen.largest[i] + static_cast<float>(log(static_cast<double>(sum)));
    }
    out.scale(i, 1.0f / sum);
  }
  out.store(f.output(b, h), begin, s.T, D);
}

// A block a row: its keys and values go to their place in the sequence's cache.
template <class N>
__global__ void append_kernel(const __grid_constant__ Forward<N> f) {
  const std::int64_t n = blockIdx.x, b = n / f.s.T, kept = 2 * f.s.K * f.s.D;
  const N* from = f.qkv + (n + 1) * f.s.qkv_width() - kept;
  N* to = reinterpret_cast<N*>(f.key_values[b]) + (f.past[b] + n % f.s.T) * kept;
  for (std::int64_t i = threadIdx.x; i < kept; i += blockDim.x) to[i] = from[i];
}

template <class N>
void append(const Forward<N>& f) {
  if (f.s.B * f.s.T == 0) return;
  append_kernel<<<static_cast<unsigned>(f.s.B * f.s.T), 256, 0, current().stream>>>(f);
  TRIREME_CUDA_LAUNCHED("attention_cached");
}

template <class N>
void run(const Forward<N>& f) {
  if (f.s.B == 0 || f.s.T == 0) return;
  if constexpr (sizeof(N) == 2) {
    if (f.s.D <= kMmaMaxD) return mma_attention_forward(f);
  }
  with_head_size(f.s.D, [&]<int kD>(std::integral_constant<int, kD>) {
    const dim3 blocks(static_cast<unsigned>(ceil_div(f.s.T, kTile)), static_cast<unsigned>(f.s.H),
                      static_cast<unsigned>(f.s.B));
    constexpr int kBytes = (2 * kTileFloats<kD> + kWeightFloats) * static_cast<int>(sizeof(float));
    launch_tiles("attention_forward", forward_kernel<kD, N>, blocks, kTileThreads, kBytes, f);
  });
}

}  // namespace

template <class T>
void attention_forward(const AttentionShape& shape, const Dropout& dropout, const T* qkv, const std::int32_t* starts,
                       T* out, Acc<T>* lse, void* workspace) {
  if constexpr (sizeof(T) == 2) {
    if (is_fused(shape, dtype_of<T>, dropout, starts)) {
      return fused_attention_forward(shape, dtype_of<T>, qkv, out, lse, workspace);
    }
  }
  run<Native<T>>({shape, Scores(shape), DropoutRule(dropout), native(qkv), nullptr, nullptr, starts, native(out), lse,
                  heads_are_aligned(shape.D, {native(qkv)})});
}

template <class T>
void attention_cached(const AttentionShape& shape, const T* qkv, std::byte* const* key_values, const std::int32_t* past,
                      const std::int32_t* starts, T* out, Acc<T>* lse, void* /*workspace*/) {
  const Forward<Native<T>> f{
      shape, Scores(shape), DropoutRule({}), native(qkv), key_values,
      past,  starts,        native(out),     lse,         heads_are_aligned(shape.D, {native(qkv)})};
  append(f);
  run(f);
}

#define TRIREME_INSTANCES(T)                                                                                         \
  template void attention_forward(const AttentionShape&, const Dropout&, const T*, const std::int32_t*, T*, Acc<T>*, \
                                  void*);                                                                            \
  template void attention_cached(const AttentionShape&, const T*, std::byte* const*, const std::int32_t*,            \
                                 const std::int32_t*, T*, Acc<T>*, void*);
TRIREME_INSTANCES(float)
TRIREME_INSTANCES(bfloat16)
TRIREME_INSTANCES(float16)

}  // namespace trireme::kernels::cuda
