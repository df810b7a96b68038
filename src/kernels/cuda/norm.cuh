// Normed runs and their gradients, each in one pass, for RMSNorm and LayerNorm.
#pragma once
#include "kernels/cuda/norm_group.cuh"

namespace trireme::kernels::cuda {

// Runs are numbered row by row.
template <bool kCentred>
__device__ int64_t place_of(const NormShape& s, int run) {
  if (kCentred || s.heads == 1) return run * s.row_stride;
  const int heads = static_cast<int>(s.heads);
  return run / heads * s.row_stride + run % heads * s.C;
}

template <class N>
struct NormArrays {
  NormShape shape;
  const N *x, *w;
  float plus;             // 1 or 0, added to the weights
  const N* b = nullptr;   // where runs are centred
  float* mean = nullptr;  // one a run; null: runs are not centred
  float* rstd = nullptr;
  float eps = 0;
  N* y = nullptr;                            // the backward's: null, or what the forward gave
  const N *dy = nullptr, *addend = nullptr;  // addend: null, or what dx is added to
  N* dx = nullptr;
  float* partial = nullptr;  // [2][blocks][C]: weight and bias gradients; null: not wanted

  template <bool kCentred>
  __device__ float weight(float w_of_c) const {
    return kCentred ? w_of_c : w_of_c + plus;
  }
};

// Forward and backward make the same bits of it.
template <bool kCentred>
__device__ float output_of(float x, float mean, float rstd, float w, float b) {
  if constexpr (kCentred) return fmaf((x - mean) * rstd, w, b);
  return x * rstd * w;
}

template <class G, bool kCentred, int kWidth, bool kAligned, class N>
__global__ void __launch_bounds__(G::kBlockThreads) normalize(NormArrays<N> a) {
  struct Run {
    int64_t at;
    int C;
    Held<G, N, kWidth, kAligned> x;
  };
  const NormShape& s = a.shape;
  const int width = static_cast<int>(s.C), runs = static_cast<int>(s.N * s.heads), step = gridDim.x * G::kRuns;
  const float inverse = 1.0f / static_cast<float>(width);
  const auto read = [&](Run& run, int n) {
    run.at = place_of<kCentred>(s, n);
    run.C = n < runs ? width : 0;
    run.x.read(a.x + run.at, run.C);
  };
  int n = blockIdx.x * G::kRuns + threadIdx.y;
  Run run, ahead;
  Held<G, N, kWidth, kAligned> weight, bias;
  weight.read(a.w, width);
  if constexpr (kCentred) bias.read(a.b, width);
  if constexpr (G::kReadsAhead) read(run, n);
  int turn = 0;
  for (int first = blockIdx.x * G::kRuns; first < runs; first += step, n += step) {
    if constexpr (G::kReadsAhead) {
      read(ahead, n + step);
    } else {
      read(run, n);
    }
    const int C = run.C;
    float middle[1] = {}, squares[1] = {};
    if constexpr (kCentred) {
      G::template for_each<kWidth>(C, [&](int i, int c) {
        const auto value = run.x.get(i, c);
#pragma unroll
        for (int j = 0; j < kWidth; ++j) middle[0] += value.at[j];
      });
      G::sum(middle, turn++);
      run.x.forget();
      middle[0] *= inverse;
    }
    G::template for_each<kWidth>(C, [&](int i, int c) {
      const auto value = run.x.get(i, c);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        float centred = value.at[j];
        if constexpr (kCentred) {  // before squaring: the squares would cancel
          centred = (kAligned ? c < C : c + j < C) ? centred - middle[0] : 0.0f;
        }
        squares[0] = fmaf(centred, centred, squares[0]);
      }
    });
    G::sum(squares, turn++);
    run.x.forget();
    weight.forget();
    if constexpr (kCentred) bias.forget();
    const float scale = rsqrtf(squares[0] * inverse + a.eps);
    N* y = a.y + run.at;
    G::template for_each<kWidth>(C, [&](int i, int c) {
      auto value = run.x.get(i, c);
      const auto factor = weight.get(i, c);
      Floats<kWidth> shift = {};
      if constexpr (kCentred) shift = bias.get(i, c);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        value.at[j] =
            output_of<kCentred>(value.at[j], middle[0], scale, a.template weight<kCentred>(factor.at[j]), shift.at[j]);
      }
      store<kAligned>(y + c, C - c, value);
    });
    if (threadIdx.x == 0 && C > 0) {
      if constexpr (kCentred) a.mean[n] = middle[0];
      a.rstd[n] = scale;
    }
    if constexpr (G::kReadsAhead) run = ahead;
  }
}

// A thread's share of the gradient of weights or bias: in registers, or, where a run does not fit there, in the block's
// row of partial sums.
template <class G, int kWidth>
struct ColumnSums {
  Floats<kWidth> sum[G::kSlots] = {};

  __device__ void begin(float* row, int C) {
    if constexpr (G::kHeld == 0) {
      G::template for_each<kWidth>(C, [&](int, int c) { store<false>(row + c, C - c, Floats<kWidth>{}); });
    }
  }
  template <class Term>
  __device__ void add(float* row, int C, int i, int c, Term term) {
    if constexpr (G::kHeld == 0) sum[0] = load_floats<kWidth, false>(row + c, C - c);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) term(sum[i].at[j], j);
    if constexpr (G::kHeld == 0) store<false>(row + c, C - c, sum[0]);
  }
  // All threads of the block, whose groups' sums are added in their order. shared: of kWidth floats a thread.
  __device__ void finish(float* row, int C, float* shared) {
    if constexpr (G::kHeld == 0) return;
    constexpr int kColumns = G::kThreads * kWidth;
#pragma unroll
    for (int i = 0; i < G::kSlots; ++i) {
      __syncthreads();
      reinterpret_cast<Floats<kWidth>*>(shared)[G::thread()] = sum[i];
      __syncthreads();
      sum_groups<G::kRuns, kColumns, G::kBlockThreads>(shared, G::thread(), C - i * kColumns, row + i * kColumns);
    }
  }
};

// dx = rstd * (g - mean(g) - normed * mean(g * normed)), g = dy * w, normed = (x - mean) * rstd; without the mean of g
// where runs are not centred.
template <class G, bool kCentred, int kWidth, bool kAligned, class N>
__global__ void __launch_bounds__(G::kBlockThreads, kGradientBlocks<G>) norm_gradients(NormArrays<N> a) {
  extern __shared__ uint4 shared[];
  using Ring = Ahead<G, N, kWidth, kAligned>;
  const NormShape& s = a.shape;
  const int width = static_cast<int>(s.C), runs = static_cast<int>(s.N * s.heads), step = gridDim.x * G::kRuns;
  const float inverse = 1.0f / static_cast<float>(width);
  // A warp's runs lie side by side. Warps of different blocks take turns, so that no block has much more to do.
  const int warp = static_cast<int>(threadIdx.y) / G::kOfWarp;
  int n = static_cast<int>(blockIdx.x + gridDim.x * warp) * G::kOfWarp + static_cast<int>(threadIdx.y) % G::kOfWarp;
  const auto fetch = [&](const Ring& ring, int n) {
    const int64_t at = place_of<kCentred>(s, n);
    const int C = n < runs ? width : 0;
    ring.fetch(0, a.x + at, C);
    ring.fetch(1, a.dy + at, C);
    if (a.addend != nullptr) ring.fetch(2, a.addend + at, C);
    close_batch();
  };
  const auto moments = [&](int n) { return n < runs ? float2{kCentred ? a.mean[n] : 0.0f, a.rstd[n]} : float2{}; };
#pragma unroll
  for (int run = 0; run < Ring::kRuns; ++run) fetch(Ring(shared, run), n + run * step);
  float2 next = moments(n);
  Held<G, N, kWidth, kAligned> x, dy, addend, weight;
  weight.read(a.w, width);
  const bool sums_columns = a.partial != nullptr;
  const auto row = [&](int which) { return a.partial + (int64_t{gridDim.x} * which + blockIdx.x) * width; };
  ColumnSums<G, kWidth> dw, db;
  if (sums_columns) {
    dw.begin(row(0), width);
    if constexpr (kCentred) db.begin(row(1), width);
  }
  let_next_kernel_start();
  // As many turns for all of a block as its first warp has runs: racecheck loses count of barriers that parts of a
  // block pass unequally often.
  int turn = 0;
  for (int first = static_cast<int>(blockIdx.x) * G::kOfWarp; first < runs; first += step, n += step, ++turn) {
    const int C = n < runs ? width : 0;
    const int64_t at = place_of<kCentred>(s, n);
    const Ring ring(shared, turn % Ring::kRuns);
    wait_for_batches<Ring::kRuns - 1>();
    ring.take(0, a.x + at, C, x);
    ring.take(1, a.dy + at, C, dy);
    if (a.addend != nullptr) ring.take(2, a.addend + at, C, addend);
    fetch(ring, n + Ring::kRuns * step);
    const auto [mean, rstd] = next;
    next = moments(n + step);
    const auto centred = [mean](float value) { return kCentred ? value - mean : value; };
    float sums[kCentred ? 2 : 1] = {};
    G::template for_each<kWidth>(C, [&](int i, int c) {
      const auto value = x.get(i, c), d = dy.get(i, c), factor = weight.get(i, c);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        const float g = d.at[j] * a.template weight<kCentred>(factor.at[j]);
        sums[0] = fmaf(g, centred(value.at[j]), sums[0]);
        if constexpr (kCentred) sums[1] += g;
      }
    });
    G::sum(sums, turn);
    if constexpr (!G::kReadsAhead) {
      x.forget();
      dy.forget();
      weight.forget();
    }
    const float slope = -sums[0] * rstd * inverse * rstd * rstd;
    const float shift = kCentred ? -sums[kCentred] * inverse * rstd : 0.0f;
    G::template for_each<kWidth>(C, [&](int i, int c) {
      const auto value = x.get(i, c), d = dy.get(i, c), factor = weight.get(i, c);
      Floats<kWidth> result = {};
      if (a.addend != nullptr) result = addend.get(i, c);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        const float rest = fmaf(centred(value.at[j]), slope, kCentred ? result.at[j] + shift : result.at[j]);
        result.at[j] = fmaf(d.at[j] * rstd, a.template weight<kCentred>(factor.at[j]), rest);
      }
      store<kAligned>(a.dx + at + c, C - c, result);
      if (sums_columns) {
        dw.add(row(0), C, i, c, [&](float& sum, int j) { sum = fmaf(d.at[j] * rstd, centred(value.at[j]), sum); });
        if constexpr (kCentred) db.add(row(1), C, i, c, [&](float& sum, int j) { sum += d.at[j]; });
      }
      if (a.y == nullptr) return;
      Floats<kWidth> bias = {};
      if constexpr (kCentred) bias = load_floats<kWidth, kAligned>(a.b + c, C - c);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        result.at[j] =
            output_of<kCentred>(value.at[j], mean, rstd, a.template weight<kCentred>(factor.at[j]), bias.at[j]);
      }
      store<kAligned>(a.y + at + c, C - c, result);
    });
  }
  if (!sums_columns) return;
  wait_for_copies();
  auto* const floats = reinterpret_cast<float*>(shared);
  dw.finish(row(0), width, floats);
  if constexpr (kCentred) db.finish(row(1), width, floats);
}

template <class N>
bool is_aligned_norm(const NormArrays<N>& a) {
  constexpr int kWidth = kWidthOf<N>;
  return are_aligned<kWidth>(a.shape.C, a.shape.row_stride, a.x, a.w, a.y, a.dy, a.addend, a.dx) &&
         (a.y == nullptr || are_aligned<kWidth>(a.shape.C, 0, a.b));  // else the bias is not read
}

inline int64_t runs_of(const NormShape& s) {
  TRIREME_CHECK(s.N * s.heads < int64_t{1} << 30 && s.C < int64_t{1} << 30,
                "a norm of more than 2^30 runs, or columns");
  return s.N * s.heads;
}

template <bool kCentred, class N>
void norm_forward(const char* name, const NormArrays<N>& a) {
  const int64_t runs = runs_of(a.shape);
  if (runs == 0) return;
  with_group<kWidthOf<N>>(a.shape.C, [&]<class G>(G) {
    constexpr int64_t kTurns = 4;  // of a block: enough to read ahead, few enough to leave none behind at the end
    const auto blocks = static_cast<unsigned>(ceil_div(runs, G::kRuns * kTurns));
    with_bool(is_aligned_norm(a), [&]<class Aligned>(Aligned) {
      normalize<G, kCentred, kWidthOf<N>, Aligned::value>
          <<<blocks, dim3(G::kThreads, G::kRuns), 0, current().stream>>>(a);
    });
  });
  TRIREME_CUDA_LAUNCHED(name);
}

// outs: the gradients of weights and, where runs are centred, of the bias.
template <bool kCentred, class N>
void norm_backward(const char* name, NormArrays<N> a, std::array<ColumnSum<N>, 2> outs) {
  const int64_t runs = runs_of(a.shape);
  StreamState& state = current();
  int64_t blocks = 0;
  const bool sums = outs[0].out != nullptr || outs[1].out != nullptr;
  if (sums) a.partial = reinterpret_cast<float*>(workspace(state));
  with_gradient_group<kWidthOf<N>, kCentred>(a.shape.C, [&]<class G>(G) {
    // Of N, C and the type alone, as the order of sums follows from it.
    const int64_t fit = kWorkspaceBytes / (2 * a.shape.C * static_cast<int64_t>(sizeof(float)));
    constexpr int64_t kMost = kGradientBlocks<G> * kFillingMultiprocessors;
    blocks = std::min({ceil_div(runs, G::kOfWarp), kMost, std::max(fit, int64_t{1})});
    if (blocks == 0) return;
    with_bool(is_aligned_norm(a), [&]<class Aligned>(Aligned) {
      const auto kernel = norm_gradients<G, kCentred, kWidthOf<N>, Aligned::value, N>;
      const int shared = Ahead<G, N, kWidthOf<N>, Aligned::value>::bytes(a.addend == nullptr ? 2 : 3);
      TRIREME_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
      kernel<<<static_cast<unsigned>(blocks), dim3(G::kThreads, G::kRuns), static_cast<std::size_t>(shared),
               state.stream>>>(a);
    });
  });
  TRIREME_CUDA_LAUNCHED(name);
  if (sums) add_partial_sums(name, blocks, a.shape.C, a.partial, outs);
}

}  // namespace trireme::kernels::cuda
