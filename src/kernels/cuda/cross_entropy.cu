// Softmax cross-entropy, a block a row, or several (a cluster) where a row is long. A row's largest logit and the sum
// of its exponentials are found in one reading; what of the row fits into shared memory waits there for the gradient to
// be written over it, the rest is read again.
#include <cooperative_groups.h>

#include <algorithm>

#include "kernels/cuda/vector.cuh"

namespace trireme::kernels::cuda {
namespace {

constexpr int kMaxThreads = 256;
constexpr int kUnroll = 4;  // pieces that a thread asks for before it looks at the first
constexpr float kMinusInfinity = -__builtin_inff();

// 16 bytes of logits.
template <class N>
constexpr int kSize = 16 / static_cast<int>(sizeof(N));
template <class N>
using Piece = Neighbours<N, kSize<N>>;

// Of some logits: the largest, and the sum of exp(logit - largest). Pieces of a row are joined in any grouping.
template <class N>
struct Softmax {
  float largest = kMinusInfinity, sum = 0;

  // Nothing but minus infinity so far: any other number keeps infinity - infinity away.
  __device__ static float shift_of(float largest) { return largest == kMinusInfinity ? 0.0f : largest; }

  __device__ void add(const Piece<N> (&pieces)[kUnroll]) {
    Floats<kSize<N>> x[kUnroll];
    float top = largest;
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      x[u] = floats(pieces[u]);
#pragma unroll
      for (int i = 0; i < kSize<N>; ++i) top = fmaxf(top, x[u].at[i]);
    }
    const float shift = shift_of(top);
    sum *= exponential<N>(largest - shift);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
      for (int i = 0; i < kSize<N>; ++i) sum += exponential<N>(x[u].at[i] - shift);
    }
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
  // The same over the blocks of a row, in their order. None of them may end before leave_row().
  __device__ Softmax over_row(int blocks) {
    Softmax all = over_block();
#if __CUDA_ARCH__ >= 900
    if (blocks == 1) return all;
    __shared__ float2 of_block;
    const auto cluster = cooperative_groups::this_cluster();
    if (threadIdx.x == 0) of_block = {all.largest, all.sum};
    cluster.sync();
    all = {};
    for (int block = 0; block < blocks; ++block) {
      const float2 other = *cluster.map_shared_rank(&of_block, block);
      all.add(Softmax{other.x, other.y});
    }
#endif
    return all;
  }
};

__device__ void leave_row(int blocks) {
#if __CUDA_ARCH__ >= 900
  if (blocks > 1) cooperative_groups::this_cluster().sync();
#endif
}

// A block's part of a row, in pieces, which are whole or, the row's last, cut off at V. Piece p of the part lies with
// thread p % blockDim.x.
template <class N>
struct Part {
  N* x;           // the part's first logit
  int V, stride;  // columns from there to the row's last logit and to the next row, or to where the next part begins
  int pieces;
  bool aligned;

  __device__ bool is_whole(int p) const { return aligned && (p + 1) * kSize<N> <= V; }
  // step(p, std::bool_constant<whole>{}) for the thread's pieces, kUnroll after another: step is said of the first
  // whether all of them are whole and aligned.
  template <class Step>
  __device__ void for_each(Step step) const {
    const int threads = static_cast<int>(blockDim.x), whole = aligned ? V / kSize<N> : 0;
    for (int first = 0; first < pieces; first += kUnroll * threads) {
      const int p = first + static_cast<int>(threadIdx.x);
      if (first + kUnroll * threads <= whole) {
        step(p, std::true_type{});
      } else {
        step(p, std::false_type{});
      }
    }
  }
  // Logits that are not there are minus infinity.
  template <bool kWhole>
  __device__ Piece<N> load(int p) const {
    if constexpr (!kWhole) {
      if (!is_whole(p)) {
        Floats<kSize<N>> values;
#pragma unroll
        for (int i = 0; i < kSize<N>; ++i) {
          values.at[i] = p * kSize<N> + i < V ? to_float(x[p * kSize<N> + i]) : kMinusInfinity;
        }
        return rounded<N>(values);
      }
    }
    return cuda::load<kSize<N>, true>(x + p * kSize<N>, 1);
  }
  template <bool kWhole>
  __device__ void store(int p, const Floats<kSize<N>>& values) const {
    if constexpr (!kWhole) {
      if (p >= pieces) return;
      if (!is_whole(p)) return cuda::store<false>(x + p * kSize<N>, V - p * kSize<N>, values);
    }
    cuda::store<true>(x + p * kSize<N>, 1, values);
  }
  // The columns from v on; aligned rows end where a piece does.
  __device__ void clear(int v) const {
    if (aligned && v % kSize<N> == 0) {
      for (int c = v + static_cast<int>(threadIdx.x) * kSize<N>; c < stride;
           c += static_cast<int>(blockDim.x) * kSize<N>)
        cuda::store<true>(x + c, 1, Floats<kSize<N>>{});
      return;
    }
    for (int c = v + static_cast<int>(threadIdx.x); c < stride; c += static_cast<int>(blockDim.x))
      x[c] = from_float<N>(0.0f);
  }
};

// How rows are shared out.
struct Rows {
  int V;
  std::int64_t stride;
  bool aligned;
  int blocks, pieces;  // of a row, of a block at most
};

template <class N>
__device__ Part<N> part_of(const Rows& rows, N* row, int block) {
  const int most = rows.pieces * kSize<N>, first = block * most;
  const int left = max(rows.V - first, 0), room = max(static_cast<int>(rows.stride) - first, 0);
  const int V = min(left, most);
  return {row + first, V, block == rows.blocks - 1 ? room : min(room, most), (V + kSize<N> - 1) / kSize<N>,
          rows.aligned};
}

struct Gradient {
  float scale, inverse_cap;
  int kept;  // pieces of a block in shared memory
};

// d(capped) / d(uncapped), from capped = cap * tanh(uncapped / cap).
__device__ float slope_of_cap(float capped, float inverse_cap) {
  const float tangent = capped * inverse_cap;
  return 1.0f - tangent * tangent;
}

// label: of the part, which may not have it.
template <bool kCapped, class N>
__device__ void write_gradient(const Part<N>& part, const Softmax<N>& softmax, int label, float logit,
                               const Gradient& gradient, const Piece<N>* kept) {
  const int threads = static_cast<int>(blockDim.x), me = static_cast<int>(threadIdx.x);
  const float factor = gradient.scale / softmax.sum;
  part.for_each([&]<bool kWhole>(int first, std::bool_constant<kWhole>) {
    Piece<N> x[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int p = first + u * threads;
      x[u] = p < gradient.kept ? kept[p] : part.template load<kWhole>(p);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      auto y = floats(x[u]);
#pragma unroll
      for (int i = 0; i < kSize<N>; ++i) {
        const float value = y.at[i];
        y.at[i] = exponential<N>(value - softmax.largest) * factor;
        if constexpr (kCapped) y.at[i] *= slope_of_cap(value, gradient.inverse_cap);
      }
      part.template store<kWhole>(first + u * threads, y);
    }
  });
  if (label >= 0 && label < part.V && label / kSize<N> % threads == me) {  // behind its piece, which it stored
    float right = (exponential<N>(logit - softmax.largest) / softmax.sum - 1.0f) * gradient.scale;
    if constexpr (kCapped) right *= slope_of_cap(logit, gradient.inverse_cap);
    part.x[label] = from_float<N>(right);
  }
  part.clear(part.V);
}

enum class Kind { loss, gradient, capped_gradient };

template <Kind kind, class N>
__global__ void __launch_bounds__(kMaxThreads, 3)
    cross_entropy_kernel(Rows rows, N* logits, const std::int32_t* labels, Gradient gradient, double* losses) {
  extern __shared__ __align__(16) unsigned char shared[];
  auto* kept = reinterpret_cast<Piece<N>*>(shared);
  const int n = static_cast<int>(blockIdx.x) / rows.blocks, block = static_cast<int>(blockIdx.x) % rows.blocks;
  N* const row = logits + n * rows.stride;
  const Part<N> part = part_of(rows, row, block);
  const int label = labels[n];
  if (label < 0) {
    if (kind != Kind::loss) part.clear(0);
    if (block == 0 && threadIdx.x == 0) losses[n] = 0;
    return;
  }
  const float logit = to_float(row[label]);
  const int threads = static_cast<int>(blockDim.x);
  Softmax<N> softmax;
  part.for_each([&]<bool kWhole>(int first, std::bool_constant<kWhole>) {
    Piece<N> x[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) x[u] = part.template load<kWhole>(first + u * threads);
    softmax.add(x);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int p = first + u * threads;
      if (p < gradient.kept) kept[p] = x[u];
    }
  });
  softmax = softmax.over_row(rows.blocks);
  if (block == 0 && threadIdx.x == 0) {
    losses[n] = log(static_cast<double>(softmax.sum)) + (static_cast<double>(softmax.largest) - logit);
  }
  if constexpr (kind != Kind::loss) {
    write_gradient<kind == Kind::capped_gradient>(part, softmax, label - block * rows.pieces * kSize<N>, logit,
                                                  gradient, kept);
  }
  leave_row(rows.blocks);
}

constexpr int kLossThreads = 1024;

__global__ void __launch_bounds__(kLossThreads) add_losses_kernel(int N, const double* losses, double* total) {
  __shared__ double sums[kLossThreads];
  double sum = 0;
  for (int n = static_cast<int>(threadIdx.x); n < N; n += kLossThreads) sum += losses[n];
  sums[threadIdx.x] = sum;
  for (int width = kLossThreads / 2; width > 0; width /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < width) sums[threadIdx.x] += sums[threadIdx.x + width];
  }
  if (threadIdx.x == 0) *total += sums[0];
}

// Blocks of a row: so many that several of them, of other rows, share a multiprocessor and read while one writes.
int blocks_of_row(std::int64_t pieces, int device) {
  constexpr std::int64_t kBlockBytes = 72 << 10;
  constexpr int kMost = 8;  // that every device with clusters has
  int clusters = 0, blocks = 1;
  TRIREME_CUDA(cudaDeviceGetAttribute(&clusters, cudaDevAttrClusterLaunch, device));
  while (clusters != 0 && blocks < kMost && ceil_div(pieces, blocks) * 16 > kBlockBytes) blocks *= 2;
  return blocks;
}

template <Kind kind, class N>
void run(std::int64_t N_rows, std::int64_t V, std::int64_t stride, N* logits, const std::int32_t* labels,
         Gradient gradient, double* total) {
  const StreamState& state = current();
  const auto kernel = cross_entropy_kernel<kind, N>;
  const std::int64_t all = ceil_div(V, kSize<N>);
  const int blocks = blocks_of_row(all, state.device);
  const std::int64_t pieces = ceil_div(all, blocks);
  const Rows rows{static_cast<int>(V), stride, is_aligned(logits) && stride % kSize<N> == 0, blocks,
                  static_cast<int>(pieces)};
  if (kind != Kind::loss) {
    int most = 0, own = 512;  // bytes of a block; over_row's
    TRIREME_CUDA(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, state.device));
    gradient.kept = static_cast<int>(std::min<std::int64_t>(pieces, (most - own) / 16));
    TRIREME_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, gradient.kept * 16));
  }
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {static_cast<unsigned>(blocks), 1, 1};
  cudaLaunchConfig_t launch{};
  launch.blockDim = pieces >= 512 ? kMaxThreads : pieces >= 128 ? 128 : 64;
  launch.dynamicSmemBytes = static_cast<std::size_t>(gradient.kept) * 16;
  launch.stream = state.stream;
  launch.attrs = &cluster;
  launch.numAttrs = blocks > 1 ? 1 : 0;
  auto* losses = reinterpret_cast<double*>(workspace(current()));
  constexpr std::int64_t kMostRows = kWorkspaceBytes / static_cast<std::int64_t>(sizeof(double));
  for (std::int64_t first = 0; first < N_rows; first += kMostRows) {
    const auto count = static_cast<int>(std::min(kMostRows, N_rows - first));
    launch.gridDim = static_cast<unsigned>(count * blocks);
    TRIREME_CUDA(cudaLaunchKernelEx(&launch, kernel, rows, logits + first * stride, labels + first, gradient, losses));
    add_losses_kernel<<<1, kLossThreads, 0, state.stream>>>(count, losses, total);
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
