// What attention's kernels are asked, on tensor cores or not.
#pragma once
#include "kernels/cuda/random.cuh"

namespace trireme::kernels::cuda {

template <class T>
using Acc = typename AccumulatorOf<T>::type;

// Rows of D elements, `stride` apart.
template <class N>
struct Matrix {
  N* rows;
  std::int64_t stride;
};

__device__ inline std::int32_t first_seen(const std::int32_t* starts, std::int64_t n) {
  return starts == nullptr ? 0 : starts[n];
}
__device__ inline float lane_of(const float4& x, int i) {
  return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w;
}

// What becomes of a product of a query and a key.
struct Scores {
  float scale, cap, inner, inverse_cap;
  explicit Scores(const AttentionShape& s)
      : scale(static_cast<float>(s.scale)),
        cap(static_cast<float>(s.soft_cap)),
        inner(s.soft_cap > 0 ? scale / cap : 0),
        inverse_cap(s.soft_cap > 0 ? static_cast<float>(1 / s.soft_cap) : 0) {}
  __device__ float of(float product) const { return cap > 0 ? cap * tanhf(product * inner) : product * scale; }
  // d(score) / d(product)
  __device__ float slope(float score) const {
    const float tangent = score * inverse_cap;
    return scale * (1.0f - tangent * tangent);
  }
};

template <class N>
struct Forward {
  AttentionShape s;
  Scores scores;
  DropoutRule dropout;
  const N* qkv;
  std::byte* const* key_values;  // null: keys and values are those of qkv
  const std::int32_t *past, *starts;
  N* out;
  float* lse;
  bool aligned;  // rows of qkv

  __device__ Matrix<const N> queries(std::int64_t b, std::int64_t h) const {
    return {qkv + b * s.T * s.qkv_width() + h * s.D, s.qkv_width()};
  }
  // The values lie K * D elements behind.
  __device__ Matrix<const N> keys(std::int64_t b, std::int64_t kv) const {
    if (key_values != nullptr) return {reinterpret_cast<const N*>(key_values[b]) + kv * s.D, 2 * s.K * s.D};
    return queries(b, s.H + kv);
  }
  __device__ Matrix<N> output(std::int64_t b, std::int64_t h) const {
    return {out + (b * s.T * s.H + h) * s.D, s.H * s.D};
  }
};

// Of some key/value heads of some sequences: the pair of the grid's row y is first + y; deltas are theirs.
template <class N>
struct Backward {
  AttentionShape s;
  Scores scores;
  DropoutRule dropout;
  const N* qkv;
  const std::int32_t* starts;
  const N* out;
  const float* lse;
  const N* dout;
  N* dqkv;
  float* deltas;  // [pairs, H / K, T]: sums of dout * out
  std::int64_t first;
  bool aligned;  // rows of qkv and dout

  __host__ __device__ std::int64_t shared() const { return s.H / s.K; }
  // Head `head` of qkv, counted through queries, keys and values.
  template <class M>
  __device__ Matrix<M> head(M* all, std::int64_t b, std::int64_t head) const {
    return {all + b * s.T * s.qkv_width() + head * s.D, s.qkv_width()};
  }
  __device__ Matrix<const N> output(const N* all, std::int64_t b, std::int64_t h) const {
    return {all + (b * s.T * s.H + h) * s.D, s.H * s.D};
  }
  __device__ std::int64_t group(std::int64_t h, std::int64_t t, std::int64_t key) const {
    return (h * s.T + t) * ((s.T + kDropoutGroup - 1) / kDropoutGroup) + key / kDropoutGroup;
  }
};

// On tensor cores, for D <= kMmaMaxD: attention_forward and attention_cached, and what attention_backward does for
// `pairs` of its heads.
constexpr std::int64_t kMmaMaxD = 128;
template <class N>
void mma_attention_forward(const Forward<N>& f);
template <class N>
void mma_attention_backward(const Backward<N>& f, std::int64_t pairs);

template <class Kernel, class... Arguments>
void launch_tiles(const char* name, Kernel kernel, dim3 blocks, int threads, int bytes, const Arguments&... arguments) {
  TRIREME_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  kernel<<<blocks, static_cast<unsigned>(threads), static_cast<std::size_t>(bytes), current().stream>>>(arguments...);
  TRIREME_CUDA_LAUNCHED(name);
}

}  // namespace trireme::kernels::cuda
