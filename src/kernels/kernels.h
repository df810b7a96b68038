// CPU kernels on raw pointers: one table of functions an element type, one instance a kernel level, chosen at run time.
//
// Everything is row-major and contiguous unless a stride is given. Sizes: B batch, T sequence, C width, H query heads,
// K key/value heads, D head size, F feed-forward width, V vocabulary, N rows. Nothing allocates; callers own all
// memory. OpenMP threads of the calling thread (set_num_threads) share the rows; no result depends on their number or
// on timing, and those of elementwise kernels not on where a run begins either. T is float, bfloat16 or double; Acc is
// float for float and bfloat16, double for double. Sums are taken in Acc, with a fixed number of lanes. Levels need not
// give the same bits: baseline has no fused multiply-add.
#pragma once
#include <cstdint>
#include <string_view>

#include "layout/dtype.h"

namespace trireme::kernels {

template <class T>
struct AccumulatorOf {
  using type = float;
};
template <>
struct AccumulatorOf<double> {
  using type = double;
};

template <class T>
struct Table {
  using Acc = typename AccumulatorOf<T>::type;

  // y[n] = x[n] * rstd[n] * w, rstd[n] = 1 / sqrt(mean(x[n]^2) + eps), over C elements; rstd is kept for the backward.
  void (*rmsnorm_forward)(std::int64_t N, std::int64_t C, const T* x, const T* w, double eps, T* y, Acc* rstd);
  // dx (overwritten, or added to if add_dx), dw (overwritten, or added to if add_dw).
  void (*rmsnorm_backward)(std::int64_t N, std::int64_t C, const T* x, const T* w, const Acc* rstd, const T* dy, T* dx,
                           bool add_dx, T* dw, bool add_dw);

  // Rotates pairs (i, i + D/2) of each head of x[N, heads, D] (row stride in elements) in place by positions[n] *
  // inv_freq[i]. sign +1 forward, -1 backward. cos_sin[position][D] holds D/2 cosines then D/2 sines (make_rope_table).
  void (*rope)(std::int64_t N, std::int64_t heads, std::int64_t D, std::int64_t row_stride, T* x,
               const std::int32_t* positions, const float* cos_sin, int sign);

  // y[N, F] = silu(x[:, 0:F]) * x[:, F:2F]
  void (*swiglu_forward)(std::int64_t N, std::int64_t F, const T* gate_up, T* y);
  void (*swiglu_backward)(std::int64_t N, std::int64_t F, const T* gate_up, const T* dy, T* dgate_up);

  // out = a + b (may alias either), n elements.
  void (*add)(std::int64_t n, const T* a, const T* b, T* out);

  // Causal grouped-query attention, scale 1/sqrt(D) given. qkv rows: [H*D | K*D | K*D]. starts[b*T + t] is the first
  // position of the document that position t of sequence b belongs to (0 without borders): t attends to starts .. t.
  // lse[B, H, T] is kept. workspace: attention_workspace bytes. out[B*T, H*D].
  void (*attention_forward)(std::int64_t B, std::int64_t T_, std::int64_t H, std::int64_t K, std::int64_t D,
                            double scale, const T* qkv, const std::int32_t* starts, T* out, Acc* lse, void* workspace);
  // dqkv is overwritten.
  void (*attention_backward)(std::int64_t B, std::int64_t T_, std::int64_t H, std::int64_t K, std::int64_t D,
                             double scale, const T* qkv, const std::int32_t* starts, const T* out, const Acc* lse,
                             const T* dout, T* dqkv, void* workspace);

  // y[n] = w[ids[n]]; ids are checked by the caller.
  void (*embedding_forward)(std::int64_t N, std::int64_t C, const std::int32_t* ids, const T* w, T* y);
  // dw[V, C]: overwritten (rows without an id become zero) or added to; rows that share an id add up in order of n, in
  // Acc, and are rounded once. workspace: embedding_workspace(N, V, C) bytes.
  void (*embedding_backward)(std::int64_t N, std::int64_t C, std::int64_t V, const std::int32_t* ids, const T* dy,
                             T* dw, bool add, void* workspace);

  // Softmax cross-entropy of logits[N, stride] over the first V columns. Rows with labels[n] < 0 count nothing. Returns
  // the sum of losses (in double, in row order) and overwrites logits with grad_scale * (softmax - onehot), zero in
  // ignored rows and in columns V .. stride.
  double (*cross_entropy)(std::int64_t N, std::int64_t V, std::int64_t stride, T* logits, const std::int32_t* labels,
                          double grad_scale);
  // The same sum without gradients; logits stay.
  double (*cross_entropy_loss)(std::int64_t N, std::int64_t V, std::int64_t stride, const T* logits,
                               const std::int32_t* labels);

  // accumulator += slot, or = slot if overwrite.
  void (*accumulate)(std::int64_t n, const T* slot, float* accumulator, bool overwrite);
  void (*cast_from_float)(std::int64_t n, const float* x, T* y);
  void (*cast_to_float)(std::int64_t n, const T* x, float* y);
};

// Optimizer and norm on fp32 flat runs: the same in every compute dtype.
struct AdamWArguments {
  double learning_rate, beta1, beta2, eps, weight_decay;
  double bias_correction1, bias_correction2;  // 1 - beta^t
  double gradient_scale;                      // the clip factor
};
struct FlatTable {
  // Decoupled weight decay (Loshchilov and Hutter 2019), torch.optim.AdamW's order of operations, in fp32.
  void (*adamw)(std::int64_t n, const AdamWArguments& a, float* master, float* m, float* v, const float* gradient);
  double (*sum_of_squares)(std::int64_t n,
                           const float* x);  // fp64 partial sums in a fixed order; NaN and Inf pass through
};

enum class Level : std::uint8_t { baseline, avx2, avx512 };
Level level();  // the best that the CPU has, or what TRIREME_CPU_LEVEL names (Error TR3060 when the CPU has not got it)
std::string_view to_string(Level level);

template <class T>
const Table<T>& table();  // float, bfloat16, double; of level()
template <class T>
const Table<T>& table(Level level);  // for tests
const FlatTable& flat_table();
const FlatTable& flat_table(Level level);

// Bytes for forward and backward of the kernels that `threads` compute threads (num_threads() when they run, at most)
// share.
std::int64_t attention_workspace(DType dtype, std::int64_t T, std::int64_t D, int threads);
std::int64_t embedding_workspace(std::int64_t N, std::int64_t V, std::int64_t C);
// cos_sin[positions][D] for `rope`.
void make_rope_table(std::int64_t positions, std::int64_t D, double theta, float* cos_sin);

// c[m, n] = a @ b (+ c if add). a is [m, k], or [k, m] if a_transposed; b is [k, n], or [n, k] if b_transposed; lda,
// ldb, ldc are row strides. bf16 products add up in fp32 and round once. Through LibTorch (MKL, oneDNN with AMX); one
// implementation for all levels.
template <class T>
void gemm(bool a_transposed, bool b_transposed, std::int64_t m, std::int64_t n, std::int64_t k, const T* a,
          std::int64_t lda, const T* b, std::int64_t ldb, T* c, std::int64_t ldc, bool add);
// The same with c in the accumulator's type: bf16 products stay in fp32. May be called from inside a parallel region,
// where it runs on one thread.
template <class T>
void gemm_unrounded(bool a_transposed, bool b_transposed, std::int64_t m, std::int64_t n, std::int64_t k, const T* a,
                    std::int64_t lda, const T* b, std::int64_t ldb, typename AccumulatorOf<T>::type* c,
                    std::int64_t ldc, bool add);

// Compute threads of the calling thread, for OpenMP and for LibTorch alike.
void set_num_threads(int threads);
int num_threads();
// Whether bf16 GEMMs run on the CPU's own bf16 instructions (AMX or AVX512_BF16).
bool cpu_is_fast_at_bf16();

}  // namespace trireme::kernels
