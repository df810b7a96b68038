// The optimizers' and the norm's kernels on flat runs.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "kernels/cuda/early.cuh"
#include "kernels/cuda/vector.cuh"
#include "kernels/stochastic.h"

namespace trireme::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWidth = 4;  // elements that a thread takes at once: 16 bytes of each array of floats

struct Nothing {};  // the element of an array that a run has not got

template <class N, int width>
struct alignas(sizeof(N) * width) Few {
  N element[width];
};

template <class G, class W>
struct Run {
  float *master, *m, *v;
  const G* gradient;
  W* weights;
};

template <int width, class G, class W, class Formula>
__device__ void update_at(std::int64_t i, const Run<G, W>& run, float scale, const Formula& formula) {
  constexpr bool kHasM = Formula::kArrays >= 1, kHasV = Formula::kArrays >= 2;
  using Floats = Few<float, width>;
  Floats master = *reinterpret_cast<const Floats*>(run.master + i), m{}, v{};
  const auto gradient = *reinterpret_cast<const Few<G, width>*>(run.gradient + i);
  if constexpr (kHasM) m = *reinterpret_cast<const Floats*>(run.m + i);
  if constexpr (kHasV) v = *reinterpret_cast<const Floats*>(run.v + i);
#pragma unroll
  for (int j = 0; j < width; ++j) {
    const float g = to_float(gradient.element[j]) * scale;
    master.element[j] = formula(master.element[j], g, m.element[j], v.element[j]);
  }
  *reinterpret_cast<Floats*>(run.master + i) = master;
  if constexpr (kHasM) *reinterpret_cast<Floats*>(run.m + i) = m;
  if constexpr (kHasV) *reinterpret_cast<Floats*>(run.v + i) = v;
  if constexpr (!std::is_same_v<W, Nothing>) {
    Few<W, width> weights;
#pragma unroll
    for (int j = 0; j < width; ++j) weights.element[j] = from_float<W>(master.element[j]);
    *reinterpret_cast<Few<W, width>*>(run.weights + i) = weights;
  }
}

template <class G, class W, class Formula>
__global__ void __launch_bounds__(kThreads)
    update_kernel(std::int64_t n, Run<G, W> run, bool vectors, const Update* update, Formula formula) {
  if (update->skips) return;
  const auto scale = static_cast<float>(update->gradient_scale);
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kThreads * kWidth;
  if (vectors && first + kThreads * kWidth <= n)
    return update_at<kWidth>(first + threadIdx.x * kWidth, run, scale, formula);
  for (std::int64_t i = first + threadIdx.x; i < min(n, first + kThreads * kWidth); i += kThreads)
    update_at<1>(i, run, scale, formula);
}

bool has_vectors(const OptimizerRun& run) {
  return is_aligned(run.master) && is_aligned(run.m) && is_aligned(run.v) && is_aligned(run.gradient) &&
         is_aligned(run.weights);
}

template <class G, class W, class Formula>
void update_typed(const Update* update, const OptimizerRun& run, const Formula& formula) {
  const Run<G, W> typed{static_cast<float*>(run.master), static_cast<float*>(run.m), static_cast<float*>(run.v),
                        static_cast<const G*>(run.gradient), static_cast<W*>(run.weights)};
  const auto blocks = static_cast<unsigned>(ceil_div(run.n, kThreads * kWidth));
  update_kernel<<<blocks, kThreads, 0, current().stream>>>(run.n, typed, has_vectors(run), update, formula);
  TRIREME_CUDA_LAUNCHED("an optimizer");
}

template <class G, class Formula>
void update_from(const Update* update, const OptimizerRun& run, const Formula& formula) {
  if (run.weights == nullptr) return update_typed<G, Nothing>(update, run, formula);
  if (run.weights_dtype == DType::f32) return update_typed<G, float>(update, run, formula);
  if (run.weights_dtype == DType::f16) return update_typed<G, __half>(update, run, formula);
  update_typed<G, __nv_bfloat16>(update, run, formula);
}

// Where state is in bf16, a thread takes the elements that share random numbers, and asks for each array's type.
using Block = cuda::Floats<kOfBlock>;

template <bool kAligned>
__device__ Block load_block(const void* array, DType dtype, std::int64_t i, std::int64_t left) {
  if (dtype == DType::f32) return load_floats<kOfBlock, kAligned>(static_cast<const float*>(array) + i, left);
  return load_floats<kOfBlock, kAligned>(static_cast<const __nv_bfloat16*>(array) + i, left);
}

// What it stored.
template <bool kAligned>
__device__ Block store_state(void* array, DType dtype, std::int64_t i, std::int64_t left, const Block& x,
                             const StochasticRounding& rounding, StateArray which) {
  if (dtype == DType::f32) {
    cuda::store<kAligned>(static_cast<float*>(array) + i, left, x);
    return x;
  }
  const random_formulas::Words words = random_words(rounding, which, i);
  Block y;
#pragma unroll
  for (int j = 0; j < kOfBlock; ++j) {
    y.at[j] = __uint_as_float(static_cast<std::uint32_t>(round_stochastically(x.at[j], words, j)) << 16);
  }
  cuda::store<kAligned>(static_cast<__nv_bfloat16*>(array) + i, left, y);
  return y;
}

template <bool kAligned>
__device__ void store_weights(void* array, DType dtype, std::int64_t i, std::int64_t left, const Block& x) {
  if (dtype == DType::f32) return cuda::store<kAligned>(static_cast<float*>(array) + i, left, x);
  if (dtype == DType::f16) return cuda::store<kAligned>(static_cast<__half*>(array) + i, left, x);
  cuda::store<kAligned>(static_cast<__nv_bfloat16*>(array) + i, left, x);
}

template <bool kAligned, class Formula>
__device__ void update_block(std::int64_t i, const OptimizerRun& run, float scale, const Formula& formula) {
  constexpr bool kHasM = Formula::kArrays >= 1, kHasV = Formula::kArrays >= 2;
  const std::int64_t left = run.n - i;
  Block master = load_block<kAligned>(run.master, run.master_dtype, i, left), m{}, v{};
  const Block gradient = load_block<kAligned>(run.gradient, run.gradient_dtype, i, left);
  if constexpr (kHasM) m = load_block<kAligned>(run.m, run.moment_dtype, i, left);
  if constexpr (kHasV) v = load_block<kAligned>(run.v, run.moment_dtype, i, left);
#pragma unroll
  for (int j = 0; j < kOfBlock; ++j) {
    master.at[j] = formula(master.at[j], gradient.at[j] * scale, m.at[j], v.at[j]);
  }
  master = store_state<kAligned>(run.master, run.master_dtype, i, left, master, run.rounding, StateArray::master);
  if constexpr (kHasM) store_state<kAligned>(run.m, run.moment_dtype, i, left, m, run.rounding, StateArray::m);
  if constexpr (kHasV) store_state<kAligned>(run.v, run.moment_dtype, i, left, v, run.rounding, StateArray::v);
  if (run.weights != nullptr) store_weights<kAligned>(run.weights, run.weights_dtype, i, left, master);
}

template <class Formula>
__global__ void __launch_bounds__(kThreads)
    update_blocks(OptimizerRun run, bool vectors, const Update* update, Formula formula) {
  if (update->skips) return;
  const auto scale = static_cast<float>(update->gradient_scale);
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kOfBlock;
  if (i >= run.n) return;
  if (vectors && i + kOfBlock <= run.n) return update_block<true>(i, run, scale, formula);
  update_block<false>(i, run, scale, formula);
}

template <class Formula>
void update_elements(const Update* update, const OptimizerRun& run, const Formula& formula) {
  if (run.n == 0) return;
  if (!run.is_fp32()) {
    const auto blocks = static_cast<unsigned>(ceil_div(run.n, kThreads * kOfBlock));
    update_blocks<<<blocks, kThreads, 0, current().stream>>>(run, has_vectors(run), update, formula);
    TRIREME_CUDA_LAUNCHED("an optimizer");
    return;
  }
  if (run.gradient_dtype == DType::f32) return update_from<float>(update, run, formula);
  update_from<__nv_bfloat16>(update, run, formula);
}

// A formula makes the new weight from the old one and the scaled gradient; it has kArrays arrays of its own.
template <bool decoupled>
struct Adam {
  static constexpr int kArrays = 2;
  float keep, decay, rate1, beta2, rate2, root_correction2, eps, step;

  explicit Adam(const OptimizerArguments& a)
      : keep(static_cast<float>(1 - a.learning_rate * a.weight_decay)),
        decay(static_cast<float>(a.weight_decay)),
        rate1(static_cast<float>(1 - a.beta1)),
        beta2(static_cast<float>(a.beta2)),
        rate2(static_cast<float>(1 - a.beta2)),
        root_correction2(static_cast<float>(std::sqrt(a.bias_correction2))),
        eps(static_cast<float>(a.eps)),
        step(static_cast<float>(-a.learning_rate / a.bias_correction1)) {}

  __device__ float operator()(float weight, float g, float& m, float& v) const {
    if constexpr (decoupled) {
      weight = weight * keep;
    } else {
      g = fmaf(weight, decay, g);
    }
    m = fmaf(g - m, rate1, m);
    v = fmaf(g * g, rate2, v * beta2);
    const float denominator = sqrtf(v) / root_correction2 + eps;
    return fmaf(m / denominator, step, weight);
  }
};

template <bool with_momentum>
struct Sgd {
  static constexpr int kArrays = with_momentum ? 1 : 0;
  float decay, momentum, step;
  bool nesterov;

  explicit Sgd(const OptimizerArguments& a)
      : decay(static_cast<float>(a.weight_decay)),
        momentum(static_cast<float>(a.momentum)),
        step(static_cast<float>(-a.learning_rate)),
        nesterov(a.nesterov) {}

  __device__ float operator()(float weight, float g, float& m, float&) const {
    g = fmaf(weight, decay, g);
    if constexpr (with_momentum) {
      m = fmaf(m, momentum, g);
      g = nesterov ? fmaf(m, momentum, g) : m;
    }
    return fmaf(g, step, weight);
  }
};

struct Adagrad {
  static constexpr int kArrays = 1;
  float decay, eps, step;

  explicit Adagrad(const OptimizerArguments& a)
      : decay(static_cast<float>(a.weight_decay)),
        eps(static_cast<float>(a.eps)),
        step(static_cast<float>(-a.learning_rate)) {}

  __device__ float operator()(float weight, float g, float& m, float&) const {
    g = fmaf(weight, decay, g);
    m = fmaf(g, g, m);
    return fmaf(g / (sqrtf(m) + eps), step, weight);
  }
};

struct Lion {
  static constexpr int kArrays = 1;
  float keep, beta1, rate1, beta2, rate2, step;

  explicit Lion(const OptimizerArguments& a)
      : keep(static_cast<float>(1 - a.learning_rate * a.weight_decay)),
        beta1(static_cast<float>(a.beta1)),
        rate1(static_cast<float>(1 - a.beta1)),
        beta2(static_cast<float>(a.beta2)),
        rate2(static_cast<float>(1 - a.beta2)),
        step(static_cast<float>(-a.learning_rate)) {}

  __device__ float operator()(float weight, float g, float& m, float&) const {
    const float mean = fmaf(g, rate1, m * beta1);
    const float direction = mean > 0 ? 1.0f : mean < 0 ? -1.0f : 0.0f;
    m = fmaf(g, rate2, m * beta2);
    return fmaf(direction, step, weight * keep);
  }
};

}  // namespace

void adamw(const OptimizerArguments& a, const Update* update, const OptimizerRun& run) {
  update_elements(update, run, Adam<true>(a));
}

void adam(const OptimizerArguments& a, const Update* update, const OptimizerRun& run) {
  update_elements(update, run, Adam<false>(a));
}

void sgd(const OptimizerArguments& a, const Update* update, const OptimizerRun& run) {
  if (run.m == nullptr) return update_elements(update, run, Sgd<false>(a));
  update_elements(update, run, Sgd<true>(a));
}

void adagrad(const OptimizerArguments& a, const Update* update, const OptimizerRun& run) {
  update_elements(update, run, Adagrad(a));
}

void lion(const OptimizerArguments& a, const Update* update, const OptimizerRun& run) {
  update_elements(update, run, Lion(a));
}

namespace {

constexpr std::int64_t kChunk = 256;  // wherever ranks' slices begin, a chunk begins
constexpr int kGroup = 8;             // neighbouring threads of a chunk, which read 128 bytes at once
constexpr int kSquaresBlocks = 4;     // of a multiprocessor
constexpr int kMostPieces = 8;        // that a thread asks for before it looks at the first

// What a thread of a group reads of a chunk.
template <class N>
struct OfChunk {
  static constexpr int kSize = kWidthOf<N>, kPieces = kChunk / (kGroup * kSize);
  Neighbours<N, kSize> piece[kPieces];

  // size: so many elements the chunk has.
  template <bool kAligned>
  __device__ void read(int size, const N* chunk) {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const int at = (i * kGroup + static_cast<int>(threadIdx.x) % kGroup) * kSize;
      piece[i] = load<kSize, kAligned>(chunk + at, at + kSize <= size ? kSize : 0);
    }
  }
  // The chunk's sum, in the group's first thread. What does not fill a piece is read here.
  __device__ double sum(int size, const N* chunk) const {
    double sum[kSize] = {};
#pragma unroll
    for (const auto& some : piece) {
      const auto values = floats(some);
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        const double value = values.at[j];
        sum[j] = fma(value, value, sum[j]);
      }
    }
#pragma unroll
    for (int width = kSize / 2; width > 0; width /= 2) {
#pragma unroll
      for (int j = 0; j < width; ++j) sum[j] += sum[j + width];
    }
#pragma unroll
    for (int width = kGroup / 2; width > 0; width /= 2) sum[0] += __shfl_down_sync(0xffffffffu, sum[0], width, kGroup);
#pragma unroll 1
    for (int i = size / kSize * kSize; i < size; ++i) {
      const double value = to_float(chunk[i]);
      sum[0] = fma(value, value, sum[0]);
    }
    return sum[0];
  }
};

// Adds the block's sums in a fixed order, for its first thread.
__device__ ExactSum sum_of_block(ExactSum sum) {
  __shared__ ExactSum of_warp[kThreads / 32];
  const auto add_lanes = [&](int lanes) {
#pragma unroll 1
    for (int width = lanes / 2; width > 0; width /= 2) {
      sum.add(ExactSum{__shfl_down_sync(0xffffffffu, sum.high, width), __shfl_down_sync(0xffffffffu, sum.low, width)});
    }
  };
  add_lanes(32);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x >= 32) return sum;
  sum = threadIdx.x < kThreads / 32 ? of_warp[threadIdx.x] : ExactSum{};
  add_lanes(kThreads / 32);
  return sum;
}

// Block b adds up the chunks [b * chunks, (b + 1) * chunks).
template <bool kAligned, class N>
__global__ void __launch_bounds__(kThreads, kSquaresBlocks)
    squares_kernel(std::int64_t n, const N* x, std::int64_t chunks, ExactSum* partials) {
  constexpr int kGroups = kThreads / kGroup, kAtOnce = kMostPieces / OfChunk<N>::kPieces;
  let_next_kernel_start();
  const std::int64_t first = blockIdx.x * chunks;
  ExactSum sum;
  for (std::int64_t turn = 0; turn < chunks; turn += kAtOnce * kGroups) {  // the whole warp goes on: it shuffles
    OfChunk<N> chunk[kAtOnce];
    int size[kAtOnce];
    const std::int64_t at = (first + turn + threadIdx.x / kGroup) * kChunk;
#pragma unroll
    for (int c = 0; c < kAtOnce; ++c) {
      const std::int64_t left = turn + c * kGroups < chunks ? n - (at + c * kGroups * kChunk) : 0;
      size[c] = static_cast<int>(max(min(left, kChunk), std::int64_t{0}));
      chunk[c].template read<kAligned>(size[c], x + at + c * kGroups * kChunk);
    }
#pragma unroll
    for (int c = 0; c < kAtOnce; ++c) sum.add(chunk[c].sum(size[c], x + at + c * kGroups * kChunk));
  }
  if (threadIdx.x % kGroup != 0) sum = {};
  sum = sum_of_block(sum);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads) add_partials_kernel(int count, const ExactSum* partials, ExactSum* total) {
  ExactSum sum;
  wait_for_kernel_before();
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) sum.add(partials[i]);
  sum = sum_of_block(sum);
  if (threadIdx.x == 0) total->add(sum);
}

template <class N>
void add_squares(std::int64_t n, const N* x, ExactSum* total) {
  if (n == 0) return;
  StreamState& state = current();
  auto* partials = reinterpret_cast<ExactSum*>(workspace(state));
  constexpr std::int64_t kAtOnce = kThreads / kGroup;  // chunks of a block
  constexpr std::int64_t kFilling = kSquaresBlocks * kFillingMultiprocessors;
  const std::int64_t all = ceil_div(n, kChunk), chunks = ceil_div(ceil_div(all, kFilling), kAtOnce) * kAtOnce;
  const std::int64_t blocks = ceil_div(all, chunks);
  const auto kernel = is_aligned(x) ? squares_kernel<true, N> : squares_kernel<false, N>;
  kernel<<<static_cast<unsigned>(blocks), kThreads, 0, state.stream>>>(n, x, chunks, partials);
  TRIREME_CUDA_LAUNCHED("sum_of_squares");
  launch_early("sum_of_squares", add_partials_kernel, 1, kThreads, static_cast<int>(blocks), partials, total);
}

}  // namespace

void sum_of_squares(std::int64_t n, const void* x, DType dtype, ExactSum* sum) {
  if (dtype == DType::bf16) return add_squares(n, native(static_cast<const bfloat16*>(x)), sum);
  add_squares(n, static_cast<const float*>(x), sum);
}

}  // namespace trireme::kernels::cuda
