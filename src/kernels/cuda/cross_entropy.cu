// Softmax cross-entropy, a block a row. A row's largest logit and the sum of its exponentials are found in one reading;
// what of the row fits into shared memory waits there for the gradient to be written over it, the rest is read again.
#include <algorithm>

#include "kernels/cuda/kernel.cuh"

namespace trireme::kernels::cuda {
namespace {

constexpr int kMaxThreads = 1024;
constexpr int kUnroll = 4;  // packs that a thread asks for before it looks at the first
constexpr float kMinusInfinity = -__builtin_inff();

template <class N>
__device__ float exponential(float x) {
  return __expf(x);  // what it is wrong by is lost when rounding to 16 bits
}
template <>
__device__ float exponential<float>(float x) {
  return expf(x);
}

// Of some logits: the largest, and the sum of exp(logit - largest). Pieces of a row are joined in any grouping.
template <class N>
struct Softmax {
  float largest = kMinusInfinity, sum = 0;

  // Nothing but minus infinity so far: any other number keeps infinity - infinity away.
  __device__ static float shift_of(float largest) { return largest == kMinusInfinity ? 0.0f : largest; }

  __device__ void add(const Pack<N>& pack) {
    float top = largest;
#pragma unroll
    for (int i = 0; i < Pack<N>::kSize; ++i) top = fmaxf(top, to_float(pack.element[i]));
    const float shift = shift_of(top);
    sum *= exponential<N>(largest - shift);
#pragma unroll
    for (int i = 0; i < Pack<N>::kSize; ++i) sum += exponential<N>(to_float(pack.element[i]) - shift);
    largest = top;
  }
  __device__ void add(const Softmax& other) {
    const float top = fmaxf(largest, other.largest), shift = shift_of(top);
    sum = sum * exponential<N>(largest - shift) + other.sum * exponential<N>(other.largest - shift);
    largest = top;
  }
  __device__ void add_lanes() {
    for (int width = 16; width > 0; width /= 2) {
      add(Softmax{__shfl_xor_sync(0xffffffffu, largest, width), __shfl_xor_sync(0xffffffffu, sum, width)});
    }
  }
  __device__ Softmax over_block() {
    __shared__ float tops[32], sums[32];
    const int lane = static_cast<int>(threadIdx.x) % 32;
    add_lanes();
    if (lane == 0) {
      tops[threadIdx.x / 32] = largest;
      sums[threadIdx.x / 32] = sum;
    }
    __syncthreads();
    Softmax all;
    if (lane < static_cast<int>(blockDim.x) / 32) all = {tops[lane], sums[lane]};
    all.add_lanes();
    return all;
  }
};

// A row in packs, which are whole or, the last, cut off at V. Pack p lies with thread p % blockDim.x.
template <class N>
struct Row {
  static constexpr int kSize = Pack<N>::kSize;
  N* x;
  int V, stride;
  bool aligned;

  __device__ bool is_whole(int p) const { return (p + 1) * kSize <= V; }
  __device__ Pack<N> load(int p) const {
    if (aligned && is_whole(p)) return load_pack(x + p * kSize);
    Pack<N> pack;
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      pack.element[i] = p * kSize + i < V ? x[p * kSize + i] : from_float<N>(kMinusInfinity);
    }
    return pack;
  }
  __device__ void store(int p, Pack<N> pack) const {
    if (aligned && is_whole(p)) return store_pack(x + p * kSize, pack);
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      const int v = p * kSize + i;
      if (v < stride) x[v] = v < V ? pack.element[i] : from_float<N>(0.0f);
    }
  }
  // The columns from v on; aligned rows end where a pack does.
  __device__ void clear(int v) const {
    if (aligned && v % kSize == 0) {
      for (int c = v + static_cast<int>(threadIdx.x) * kSize; c < stride; c += static_cast<int>(blockDim.x) * kSize)
        store_pack(x + c, Pack<N>{});
      return;
    }
    for (int c = v + static_cast<int>(threadIdx.x); c < stride; c += static_cast<int>(blockDim.x))
      x[c] = from_float<N>(0.0f);
  }
};

struct Gradient {
  float scale, inverse_cap;
  int kept;  // packs of a row in shared memory
};

// d(capped) / d(uncapped), from capped = cap * tanh(uncapped / cap).
__device__ float slope_of_cap(float capped, float inverse_cap) {
  const float tangent = capped * inverse_cap;
  return 1.0f - tangent * tangent;
}

template <bool kCapped, class N>
__device__ void write_gradient(const Row<N>& row, const Softmax<N>& softmax, int label, float logit,
                               const Gradient& gradient, const Pack<N>* kept) {
  const int packs = (row.V + row.kSize - 1) / row.kSize, threads = static_cast<int>(blockDim.x);
  const int me = static_cast<int>(threadIdx.x);
  const float factor = gradient.scale / softmax.sum;
  for (int first = me; first < packs; first += kUnroll * threads) {
    Pack<N> x[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int p = first + u * threads;
      if (p < packs) x[u] = p < gradient.kept ? kept[p] : row.load(p);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
      for (int i = 0; i < row.kSize; ++i) {
        const float value = to_float(x[u].element[i]);
        float y = exponential<N>(value - softmax.largest) * factor;
        if constexpr (kCapped) y *= slope_of_cap(value, gradient.inverse_cap);
        x[u].element[i] = from_float<N>(y);
      }
      if (first + u * threads < packs) row.store(first + u * threads, x[u]);
    }
  }
  if (label / row.kSize % threads == me) {  // behind its pack, which this thread stored
    float right = (exponential<N>(logit - softmax.largest) / softmax.sum - 1.0f) * gradient.scale;
    if constexpr (kCapped) right *= slope_of_cap(logit, gradient.inverse_cap);
    row.x[label] = from_float<N>(right);
  }
  row.clear(packs * row.kSize);
}

enum class Kind { loss, gradient, capped_gradient };

template <Kind kind, class N>
__global__ void __launch_bounds__(kMaxThreads)
    cross_entropy_kernel(int V, std::int64_t stride, bool aligned, N* logits, const std::int32_t* labels,
                         Gradient gradient, double* losses) {
  extern __shared__ __align__(16) unsigned char shared[];
  auto* kept = reinterpret_cast<Pack<N>*>(shared);
  const Row<N> row{logits + blockIdx.x * stride, V, static_cast<int>(stride), aligned};
  const int label = labels[blockIdx.x];
  if (label < 0) {
    if (kind != Kind::loss) row.clear(0);
    if (threadIdx.x == 0) losses[blockIdx.x] = 0;
    return;
  }
  const float logit = to_float(row.x[label]);
  const int packs = (V + row.kSize - 1) / row.kSize, threads = static_cast<int>(blockDim.x);
  Softmax<N> softmax;
  for (int first = static_cast<int>(threadIdx.x); first < packs; first += kUnroll * threads) {
    Pack<N> x[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (first + u * threads < packs) x[u] = row.load(first + u * threads);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int p = first + u * threads;
      if (p >= packs) break;
      softmax.add(x[u]);
      if (p < gradient.kept) kept[p] = x[u];
    }
  }
  softmax = softmax.over_block();
  if (threadIdx.x == 0) {
    losses[blockIdx.x] = log(static_cast<double>(softmax.sum)) + (static_cast<double>(softmax.largest) - logit);
  }
  if constexpr (kind != Kind::loss) {
    write_gradient<kind == Kind::capped_gradient>(row, softmax, label, logit, gradient, kept);
  }
}

__global__ void __launch_bounds__(kMaxThreads) add_losses_kernel(int N, const double* losses, double* total) {
  __shared__ double sums[kMaxThreads];
  double sum = 0;
  for (int n = static_cast<int>(threadIdx.x); n < N; n += kMaxThreads) sum += losses[n];
  sums[threadIdx.x] = sum;
  for (int width = kMaxThreads / 2; width > 0; width /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < width) sums[threadIdx.x] += sums[threadIdx.x + width];
  }
  if (threadIdx.x == 0) *total += sums[0];
}

template <Kind kind, class N>
void run(std::int64_t rows, std::int64_t V, std::int64_t stride, N* logits, const std::int32_t* labels,
         Gradient gradient, double* total) {
  const StreamState& state = current();
  const auto kernel = cross_entropy_kernel<kind, N>;
  const std::int64_t packs = ceil_div(V, Pack<N>::kSize);
  if (kind != Kind::loss) {
    int most = 0, own = 512;  // bytes of a block; over_block's
    TRIREME_CUDA(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, state.device));
    gradient.kept = static_cast<int>(std::min<std::int64_t>(packs, (most - own) / 16));
    TRIREME_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, gradient.kept * 16));
  }
  const int threads = packs >= 4096 ? kMaxThreads : packs >= 1024 ? 512 : packs >= 256 ? 256 : 64;
  const bool aligned = is_aligned(logits) && stride % Pack<N>::kSize == 0;
  auto* losses = reinterpret_cast<double*>(workspace(current()));
  constexpr std::int64_t kMostRows = kWorkspaceBytes / static_cast<std::int64_t>(sizeof(double));
  for (std::int64_t first = 0; first < rows; first += kMostRows) {
    const auto count = static_cast<int>(std::min(kMostRows, rows - first));
    kernel<<<static_cast<unsigned>(count), threads, static_cast<std::size_t>(gradient.kept) * 16, state.stream>>>(
        static_cast<int>(V), stride, aligned, logits + first * stride, labels + first, gradient, losses);
    TRIREME_CUDA_LAUNCHED("cross_entropy");
    add_losses_kernel<<<1, kMaxThreads, 0, state.stream>>>(count, losses, total);
    TRIREME_CUDA_LAUNCHED("cross_entropy");
  }
}

}  // namespace

template <class T>
void cross_entropy(std::int64_t N, std::int64_t V, std::int64_t stride, double soft_cap, T* logits,
                   const std::int32_t* labels, double grad_scale, double* total) {
  const auto scale = static_cast<float>(grad_scale);
  if (soft_cap > 0) {
    const auto inverse = static_cast<float>(1 / soft_cap);
    return run<Kind::capped_gradient>(N, V, stride, native(logits), labels, {scale, inverse, 0}, total);
  }
  run<Kind::gradient>(N, V, stride, native(logits), labels, {scale, 0, 0}, total);
}

template <class T>
void cross_entropy_loss(std::int64_t N, std::int64_t V, std::int64_t stride, const T* logits,
                        const std::int32_t* labels, double* total) {
  run<Kind::loss>(N, V, stride, const_cast<Native<T>*>(native(logits)), labels, {0, 0, 0}, total);
}

#define TRIREME_INSTANCES(T)                                                                                     \
  template void cross_entropy(std::int64_t, std::int64_t, std::int64_t, double, T*, const std::int32_t*, double, \
                              double*);                                                                          \
  template void cross_entropy_loss(std::int64_t, std::int64_t, std::int64_t, const T*, const std::int32_t*, double*);
TRIREME_INSTANCES(float)
TRIREME_INSTANCES(bfloat16)
TRIREME_INSTANCES(float16)

}  // namespace trireme::kernels::cuda
