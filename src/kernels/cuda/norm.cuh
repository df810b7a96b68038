// Normed runs and their gradients, each in one pass, for RMSNorm and LayerNorm.
#pragma once
#include "kernels/cuda/norm_group.cuh"

namespace trireme::kernels::cuda {

// Runs are numbered row by row.
__device__ inline int64_t place_of(const NormShape& s, int run) {
  if (s.heads == 1) return run * s.row_stride;
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
    run.at = place_of(s, n);
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
  float* row;
  int C;

  // partial: of all blocks, or null.
  __device__ ColumnSums(float* partial, int C) : row(partial + int64_t{blockIdx.x} * C), C(C) {
    if (G::kHeld == 0 && partial != nullptr) G::template for_each<kWidth>(C, [&](int, int c) { put(c, {}); });
  }
  template <class Term>
  __device__ void add(int i, int c, Term term) {
    if constexpr (G::kHeld == 0) sum[0] = load_floats<kWidth, false>(row + c, C - c);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) term(sum[i].at[j], j);
    if constexpr (G::kHeld == 0) put(c, sum[0]);
  }
  // All threads of the block; its groups' sums in their order.
  __device__ void finish() {
    if constexpr (G::kHeld == 0) return;
    G::template for_each<kWidth>(C, [&](int i, int c) {
      if constexpr (G::kRuns > 1) {
        __shared__ Floats<kWidth> of_group[G::kRuns][G::kThreads];
        __syncthreads();
        of_group[threadIdx.y][threadIdx.x] = sum[i];
        __syncthreads();
        if (threadIdx.y > 0) return;
        for (int group = 1; group < G::kRuns; ++group) {
#pragma unroll
          for (int j = 0; j < kWidth; ++j) sum[i].at[j] += of_group[group][threadIdx.x].at[j];
        }
      }
      put(c, sum[i]);
    });
  }

 private:
  __device__ void put(int c, const Floats<kWidth>& values) const {
    store<false>(row + c, C - c, values);
  }
};

// Of a multiprocessor: so many that memory is never at rest, and so few that sums stay in registers.
// Two sums a column need more of them.
template <class G, bool kCentred>
constexpr int kBackwardBlocks = std::max((G::kHeld == 1 ? (kCentred ? 576 : 768) : (kCentred ? 384 : 512)) /
                                             G::kBlockThreads,
                                         1);

// dx = rstd * (g - mean(g) - normed * mean(g * normed)), g = dy * w, normed = (x - mean) * rstd; without the mean of g
// where runs are not centred.
template <class G, bool kCentred, int kWidth, bool kAligned, class N>
__global__ void __launch_bounds__(G::kBlockThreads, kBackwardBlocks<G, kCentred>) norm_gradients(NormArrays<N> a) {
  struct Run {
    int64_t at;
    int C;
    Held<G, N, kWidth, kAligned> x, dy;
    float mean, rstd;
  };
  const NormShape& s = a.shape;
  const int width = static_cast<int>(s.C), runs = static_cast<int>(s.N * s.heads), step = gridDim.x * G::kRuns;
  const float inverse = 1.0f / static_cast<float>(width);
  const auto read = [&](Run& run, int n) {
    run.at = place_of(s, n);
    run.C = n < runs ? width : 0;
    run.x.read(a.x + run.at, run.C);
    run.dy.read(a.dy + run.at, run.C);
    run.rstd = n < runs ? a.rstd[n] : 0.0f;
    if constexpr (kCentred) run.mean = n < runs ? a.mean[n] : 0.0f;
  };
  int n = blockIdx.x * G::kRuns + threadIdx.y;
  Run run, ahead;
  Held<G, N, kWidth, kAligned> weight, addend;
  weight.read(a.w, width);
  const bool sums_columns = a.partial != nullptr;
  ColumnSums<G, kWidth> dw(a.partial, width);
  ColumnSums<G, kWidth> db(kCentred && sums_columns ? a.partial + int64_t{gridDim.x} * width : nullptr, width);
  if constexpr (G::kReadsAhead) read(run, n);
  int turn = 0;
  for (int first = blockIdx.x * G::kRuns; first < runs; first += step, n += step, ++turn) {
    if constexpr (!G::kReadsAhead) read(run, n);
    if (a.addend != nullptr) addend.read(a.addend + run.at, run.C);
    if constexpr (G::kReadsAhead) read(ahead, n + step);
    const int C = run.C;
    const auto normed = [&](float value) {
      if constexpr (kCentred) value -= run.mean;
      return value * run.rstd;
    };
    float sums[kCentred ? 2 : 1] = {};
    G::template for_each<kWidth>(C, [&](int i, int c) {
      const auto value = run.x.get(i, c), d = run.dy.get(i, c), factor = weight.get(i, c);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        const float g = d.at[j] * a.template weight<kCentred>(factor.at[j]);
        sums[0] = fmaf(g, normed(value.at[j]), sums[0]);
        if constexpr (kCentred) sums[1] += g;
      }
    });
    G::sum(sums, turn);
    run.x.forget();
    run.dy.forget();
    weight.forget();
    const float slope = -sums[0] * inverse;
    N* dx = a.dx + run.at;
    G::template for_each<kWidth>(C, [&](int i, int c) {
      const auto value = run.x.get(i, c), d = run.dy.get(i, c), factor = weight.get(i, c);
      Floats<kWidth> result = {};
      if (a.addend != nullptr) result = addend.get(i, c);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        float g = fmaf(normed(value.at[j]), slope, d.at[j] * a.template weight<kCentred>(factor.at[j]));
        if constexpr (kCentred) g -= sums[1] * inverse;
        result.at[j] = fmaf(g, run.rstd, result.at[j]);
      }
      store<kAligned>(dx + c, C - c, result);
      if (a.y != nullptr) {
        Floats<kWidth> shift = {};
        if constexpr (kCentred) shift = load_floats<kWidth, kAligned>(a.b + c, C - c);
#pragma unroll
        for (int j = 0; j < kWidth; ++j) {
          result.at[j] = output_of<kCentred>(value.at[j], kCentred ? run.mean : 0.0f, run.rstd,
                                             a.template weight<kCentred>(factor.at[j]), shift.at[j]);
        }
        store<kAligned>(a.y + run.at + c, C - c, result);
      }
      if (!sums_columns) return;
      dw.add(i, c, [&](float& sum, int j) { sum = fmaf(d.at[j], normed(value.at[j]), sum); });
      if constexpr (kCentred) db.add(i, c, [&](float& sum, int j) { sum += d.at[j]; });
    });
    if constexpr (G::kReadsAhead) run = ahead;
  }
  if (!sums_columns) return;
  dw.finish();
  if constexpr (kCentred) db.finish();
}

template <class N>
bool is_aligned_norm(const NormArrays<N>& a) {
  constexpr int kWidth = 16 / static_cast<int>(sizeof(N));
  return are_aligned<kWidth>(a.shape.C, a.shape.row_stride, a.x, a.w, a.y, a.dy, a.addend, a.dx) &&
         (a.y == nullptr || are_aligned<kWidth>(a.shape.C, 0, a.b));  // else the bias is not read
}

// launch(Group<..>{}, std::bool_constant<kAligned>{})
template <bool kGradients, class N, class Launch>
void with_norm_group(const NormArrays<N>& a, Launch launch) {
  with_group<16 / static_cast<int>(sizeof(N)), kGradients>(a.shape.C, [&]<class G>(G group) {
    with_bool(is_aligned_norm(a), [&](auto aligned) { launch(group, aligned); });
  });
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
  with_norm_group<false>(a, [&]<class G, class Aligned>(G, Aligned) {
    constexpr int64_t kTurns = 4;  // of a block: enough to read ahead, few enough to leave none behind at the end
    const auto blocks = static_cast<unsigned>(ceil_div(runs, G::kRuns * kTurns));
    normalize<G, kCentred, 16 / static_cast<int>(sizeof(N)), Aligned::value>
        <<<blocks, dim3(G::kThreads, G::kRuns), 0, current().stream>>>(a);
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
  with_norm_group<true>(a, [&]<class G, class Aligned>(G, Aligned) {
    // Of N, C and the type alone, as the order of sums follows from it.
    constexpr int64_t kMost = kFillingMultiprocessors * kBackwardBlocks<G, kCentred>;
    const int64_t fit = kWorkspaceBytes / (2 * a.shape.C * static_cast<int64_t>(sizeof(float)));
    blocks = std::min({ceil_div(runs, G::kRuns), kMost, std::max(fit, int64_t{1})});
    if (blocks == 0) return;
    norm_gradients<G, kCentred, 16 / static_cast<int>(sizeof(N)), Aligned::value>
        <<<static_cast<unsigned>(blocks), dim3(G::kThreads, G::kRuns), 0, state.stream>>>(a);
  });
  TRIREME_CUDA_LAUNCHED(name);
  if (sums) add_partial_sums(name, blocks, a.shape.C, a.partial, outs);
}

}  // namespace trireme::kernels::cuda
