// Softmax cross-entropy, a block a row, or several (a cluster) where a row is long. A row's largest logit and the sum
// of its exponentials are found in one reading; what of the row fits into shared memory waits there for the gradient to
// be written over it, the rest is read again.
#include <cooperative_groups.h>

#include <algorithm>

#include "kernels/cuda/vector.cuh"

namespace trireme::kernels::cuda {
namespace {

constexpr int kMaxThreads = 256, kBlocks = 4;  // of a block, of a multiprocessor
constexpr int kMostOfRow = 8;                  // blocks, that every device with clusters has
constexpr int kUnroll = 4;                     // pieces that a thread asks for before it looks at the first
constexpr float kMinusInfinity = -__builtin_inff();

// 16 bytes of logits.
template <class N>
constexpr int kSize = 16 / static_cast<int>(sizeof(N));
template <class N>
using Piece = Neighbours<N, kSize<N>>;

// The larger of the elements of two words, place by place.
__device__ std::uint32_t larger(std::uint32_t a, std::uint32_t b, float) {
  return __float_as_uint(fmaxf(__uint_as_float(a), __uint_as_float(b)));
}
__device__ std::uint32_t larger(std::uint32_t a, std::uint32_t b, __nv_bfloat16) {
  asm("max.bf16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
  return a;
}
__device__ std::uint32_t larger(std::uint32_t a, std::uint32_t b, __half) {
  asm("max.f16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
  return a;
}

// exp(x - shift); for results of 16 bits in two instructions.
template <class N>
struct Exponential {
  static constexpr float kLog2E = 1.4426950408889634f;
  float least;

  __device__ explicit Exponential(float shift) : least(-shift * kLog2E) {}
  __device__ float operator()(float x) const {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(fmaf(x, kLog2E, least)));
    return y;
  }
};
template <>
struct Exponential<float> {
  float shift;

  __device__ explicit Exponential(float shift) : shift(shift) {}
  __device__ float operator()(float x) const { return expf(x - shift); }
};

// The blocks of a row write into each other's shared memory, once all of them have begun.
__device__ void enter_row(int blocks) {
#if __CUDA_ARCH__ >= 900
  if (blocks > 1) asm volatile("barrier.cluster.arrive.relaxed.aligned;");
#endif
}
__device__ void wait_for_blocks(int blocks) {
#if __CUDA_ARCH__ >= 900
  if (blocks > 1) asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#endif
}

// Of some logits: the largest, and the sum of exp(logit - largest). Pieces of a row are joined in any grouping.
template <class N>
struct Softmax {
  float largest = kMinusInfinity, sum = 0;

  // Nothing but minus infinity so far: any other number keeps infinity - infinity away.
  __device__ static float shift_of(float largest) { return largest == kMinusInfinity ? 0.0f : largest; }

  __device__ void add(const Piece<N> (&pieces)[kUnroll]) {
    constexpr int kWords = Piece<N>::kWords, kOfWord = Piece<N>::kOfWord;
    std::uint32_t tops = pieces[0].word[0];
#pragma unroll
    for (int i = 1; i < kUnroll * kWords; ++i) tops = larger(tops, pieces[i / kWords].word[i % kWords], N{});
    float some[kOfWord], sums[kOfWord] = {};
    unpack(tops, some, N{});
    float top = largest;
#pragma unroll
    for (const float x : some) top = fmaxf(top, x);
    const float shift = shift_of(top);
    const Exponential<N> exponential(shift);
#pragma unroll
    for (int i = 0; i < kUnroll * kWords; ++i) {
      unpack(pieces[i / kWords].word[i % kWords], some, N{});
#pragma unroll
      for (int j = 0; j < kOfWord; ++j) sums[j] += exponential(some[j]);
    }
    sum *= exponential(largest);
#pragma unroll
    for (const float x : sums) sum += x;
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
  // The same over the blocks of a row, in their order, each of which has called enter_row().
  __device__ Softmax over_row(int block, int blocks) {
    Softmax all = over_block();
#if __CUDA_ARCH__ >= 900
    if (blocks == 1) return all;
    __shared__ float2 of_blocks[kMostOfRow];
    const auto cluster = cooperative_groups::this_cluster();
    wait_for_blocks(blocks);
    if (static_cast<int>(threadIdx.x) < blocks) {
      *cluster.map_shared_rank(&of_blocks[block], threadIdx.x) = {all.largest, all.sum};
    }
    cluster.sync();
    all = {};
    for (int other = 0; other < blocks; ++other) all.add(Softmax{of_blocks[other].x, of_blocks[other].y});
#endif
    return all;
  }
};

// A block's part of a row, in pieces, which are whole or, the row's last, cut off at V. Piece p of the part lies with
// thread p % blockDim.x.
template <class N>
struct Part {
  N* x;           // the part's first logit
  int V, stride;  // columns from there to the row's last logit and to the next row, or to where the next part begins
  int pieces;
  bool aligned;

  __device__ bool is_whole(int p) const { return aligned && (p + 1) * kSize<N> <= V; }
  // step(p, std::bool_constant<whole>{}) for the first of every kUnroll of the thread's pieces, with whether all of
  // them are whole and aligned.
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
  // kUnroll of the thread's pieces, from p on.
  __device__ void read(int p, Piece<N> (&x)[kUnroll]) const {
    const int threads = static_cast<int>(blockDim.x), whole = aligned ? V / kSize<N> : 0;
    if (p - static_cast<int>(threadIdx.x) + kUnroll * threads <= whole) {
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) x[u] = load<true>(p + u * threads);
    } else {
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) x[u] = load<false>(p + u * threads);
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
  const Exponential<N> exponential(softmax.largest);
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
        y.at[i] = exponential(value) * factor;
        if constexpr (kCapped) y.at[i] *= slope_of_cap(value, gradient.inverse_cap);
      }
      part.template store<kWhole>(first + u * threads, y);
    }
  });
  if (label >= 0 && label < part.V && label / kSize<N> % threads == me) {  // behind its piece, which it stored
    float right = (exponential(logit) / softmax.sum - 1.0f) * gradient.scale;
    if constexpr (kCapped) right *= slope_of_cap(logit, gradient.inverse_cap);
    part.x[label] = from_float<N>(right);
  }
  part.clear(part.V);
}

enum class Kind { loss, gradient, capped_gradient };

template <Kind kind, class N>
__global__ void __launch_bounds__(kMaxThreads, kBlocks)
    cross_entropy_kernel(Rows rows, N* logits, const std::int32_t* labels, Gradient gradient, double* losses) {
  extern __shared__ __align__(16) unsigned char shared[];
  auto* kept = reinterpret_cast<Piece<N>*>(shared);
  const int n = static_cast<int>(blockIdx.x) / rows.blocks, block = static_cast<int>(blockIdx.x) % rows.blocks;
  enter_row(rows.blocks);
  N* const row = logits + n * rows.stride;
  const Part<N> part = part_of(rows, row, block);
  const int me = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  Piece<N> x[kUnroll];
  part.read(me, x);  // before it is known whether the row counts
  const int label = labels[n];
  if (label < 0) {
    if (kind != Kind::loss) part.clear(0);
    if (block == 0 && threadIdx.x == 0) losses[n] = 0;
    return wait_for_blocks(rows.blocks);
  }
  const float logit = to_float(row[label]);
  Softmax<N> softmax;
  for (int first = me; first - me < part.pieces; first += kUnroll * threads) {
    Piece<N> next[kUnroll];
    part.read(first + kUnroll * threads, next);
    softmax.add(x);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int p = first + u * threads;
      if (p < gradient.kept) kept[p] = x[u];
      x[u] = next[u];
    }
  }
  softmax = softmax.over_row(block, rows.blocks);
  if (block == 0 && threadIdx.x == 0) {
    losses[n] = log(static_cast<double>(softmax.sum)) + (static_cast<double>(softmax.largest) - logit);
  }
  if constexpr (kind != Kind::loss) {
    write_gradient<kind == Kind::capped_gradient>(part, softmax, label - block * rows.pieces * kSize<N>, logit,
                                                  gradient, kept);
  }
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
  int clusters = 0, blocks = 1;
  TRIREME_CUDA(cudaDeviceGetAttribute(&clusters, cudaDevAttrClusterLaunch, device));
  while (clusters != 0 && blocks < kMostOfRow && ceil_div(pieces, blocks) * 16 > kBlockBytes) blocks *= 2;
  return blocks;
}

template <Kind kind, class N>
void run(std::int64_t N_rows, std::int64_t V, std::int64_t stride, N* logits, const std::int32_t* labels,
         Gradient gradient, double* total) {
  const StreamState& state = current();
  const auto kernel = cross_entropy_kernel<kind, N>;
  const std::int64_t all = ceil_div(V, kSize<N>);
  const int blocks = kind == Kind::loss ? 1 : blocks_of_row(all, state.device);
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
