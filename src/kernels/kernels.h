// Kernels on raw pointers: one table of functions an element type; one instance a kernel level of the CPU, chosen at
// run time, and one for CUDA devices (device.h says when it is that).
//
// Everything is row-major and contiguous unless a stride is given. Sizes: B batch, T sequence, C width, H query heads,
// K key/value heads, D head size, F feed-forward width, V vocabulary, N rows. Nothing allocates; callers own all
// memory. OpenMP threads of the calling thread (set_num_threads) share the rows; no result depends on their number or
// on timing, and those of elementwise kernels not on where a run begins either. T is float, bfloat16, float16 or
// double; Acc is double for double, float for the others. Sums are taken in Acc, with a fixed number of lanes. Levels
// need not give the same bits: baseline has no fused multiply-add.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/activation.h"
#include "layout/dtype.h"

namespace trireme::kernels {

// What a norm works on: in each of N rows, row_stride elements apart, `heads` runs of C elements side by side. w is the
// same for all.
struct NormShape {
  std::int64_t N = 1, C = 1;
  std::int64_t heads = 1, row_stride = C;
  bool one_plus = false;  // multiplies by 1 + w
};

// Drops elements with this probability and divides the others by 1 - it. Of the sample whose key is keys[b], element e
// is dropped where word (e / 16) % 4 of random_block(keys[b], stream, e / 64 * 16 + e % 16) is below probability *
// 2^32: a function of key, stream and element alone.
struct Dropout {
  double probability = 0;               // in 0 .. 1, 1 excluded
  const std::uint64_t* keys = nullptr;  // one a sample
  std::uint64_t stream = 0;
};

struct AttentionShape {
  std::int64_t B = 1, T = 1, H = 1, K = 1, D = 2;
  double scale = 1;     // of scores
  double soft_cap = 0;  // scores become cap * tanh(score / cap); 0: they stay
  // Positions that a sequence may have before its T ones, with keys and values in a cache. Only sizes memory.
  std::int64_t past = 0;
  bool deterministic = true;  // false: on devices the backward may add up in any order
  constexpr std::int64_t positions() const { return past + T; }
  constexpr std::int64_t qkv_width() const { return (H + 2 * K) * D; }
};

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

  // y = x * rstd * w over each run of C elements, rstd = 1 / sqrt(mean(x^2) + eps); rstd [N, heads] is kept for the
  // backward. y lies as x does.
  void (*rmsnorm_forward)(const NormShape& shape, const T* x, const T* w, double eps, T* y, Acc* rstd);
  // dx, plus addend unless that is null (it may be dx); dw (overwritten, or added to if add_dw; null: not wanted), and
  // the forward's y once more unless it is null. dy, addend, dx and y lie as x does; y may be dy.
  void (*rmsnorm_backward)(const NormShape& shape, const T* x, const T* w, const Acc* rstd, const T* dy,
                           const T* addend, T* dx, T* dw, bool add_dw, T* y);
  // y[n] = (x[n] - mean[n]) * rstd[n] * w + b, rstd[n] = 1 / sqrt(variance(x[n]) + eps); mean and rstd are kept.
  void (*layernorm_forward)(std::int64_t N, std::int64_t C, const T* x, const T* w, const T* b, double eps, T* y,
                            Acc* mean, Acc* rstd);
  // db too is overwritten, or added to if add_db, or null; b is read for y alone.
  void (*layernorm_backward)(std::int64_t N, std::int64_t C, const T* x, const T* w, const T* b, const Acc* mean,
                             const Acc* rstd, const T* dy, const T* addend, T* dx, T* dw, bool add_dw, T* db,
                             bool add_db, T* y);

  // Rotates pairs (i, i + D/2) of each head of x[N, heads, D] (row stride in elements) in place by positions[n] *
  // inv_freq[i]. sign +1 forward, -1 backward. cos_sin[position][D] holds D/2 cosines then D/2 sines (make_rope_table).
  void (*rope)(std::int64_t N, std::int64_t heads, std::int64_t D, std::int64_t row_stride, T* x,
               const std::int32_t* positions, const float* cos_sin, int sign);

  // y[N, F] = activation(x[:, 0:F]) * x[:, F:2F]. The backward gives y once more unless it is null; it may be dy.
  void (*glu_forward)(Activation activation, std::int64_t N, std::int64_t F, const T* gate_up, T* y);
  void (*glu_backward)(Activation activation, std::int64_t N, std::int64_t F, const T* gate_up, const T* dy,
                       T* dgate_up, T* y);
  // y = activation(x), n elements; dx = dy * activation'(x), and y once more unless it is null. One of them may take
  // the place of dy.
  void (*activation_forward)(Activation activation, std::int64_t n, const T* x, T* y);
  void (*activation_backward)(Activation activation, std::int64_t n, const T* x, const T* dy, T* dx, T* y);

  // y[n] = b, plus addend[n] unless that is null (it may be y), C elements a row.
  void (*bias_forward)(std::int64_t N, std::int64_t C, const T* b, const T* addend, T* y);
  // db = the sum of dy's rows (+ db if add), in a fixed order.
  void (*bias_backward)(std::int64_t N, std::int64_t C, const T* dy, T* db, bool add);

  // x *= factor, n elements.
  void (*scale)(std::int64_t n, double factor, T* x);
  // x = cap * tanh(x / cap) in the first V columns of x[N, stride].
  void (*soft_cap)(std::int64_t N, std::int64_t V, std::int64_t stride, double cap, T* x);
  // y = x, dropped and scaled, for B samples of n elements; y may be x. The gradient's backward is the same.
  void (*dropout)(std::int64_t B, std::int64_t n, const Dropout& dropout, const T* x, T* y);

  // out = a + b (may alias either), n elements.
  void (*add)(std::int64_t n, const T* a, const T* b, T* out);

  // Causal grouped-query attention. qkv rows: [H*D | K*D | K*D]. starts[b*T + t] is the first position of sequence b
  // that position t may see (0, the start of its document, or of a window): t attends to starts .. t; on devices null
  // says that it is 0 everywhere. lse[B, H, T] is kept. workspace: attention_workspace bytes. out[B*T, H*D]. Of
  // dropout, element (h*T + t) * T' + j is the weight that head h's position t gives to j, T' the multiple of 64 next
  // to T.
  void (*attention_forward)(const AttentionShape& shape, const Dropout& dropout, const T* qkv,
                            const std::int32_t* starts, T* out, Acc* lse, void* workspace);
  // The same for sequences whose rows go on where earlier ones ended: t is position past[b] + t. key_values[b] are T's
  // rows [K*D | K*D] of the sequence's positions: those of 0 .. past[b] - 1 are there, the T further ones are written.
  // starts are positions of the sequence. past[b] <= shape.past.
  void (*attention_cached)(const AttentionShape& shape, const T* qkv, std::byte* const* key_values,
                           const std::int32_t* past, const std::int32_t* starts, T* out, Acc* lse, void* workspace);
  // dqkv is overwritten.
  void (*attention_backward)(const AttentionShape& shape, const Dropout& dropout, const T* qkv,
                             const std::int32_t* starts, const T* out, const Acc* lse, const T* dout, T* dqkv,
                             void* workspace);

  // y[n] = w[ids[n]]; ids are checked by the caller.
  void (*embedding_forward)(std::int64_t N, std::int64_t C, const std::int32_t* ids, const T* w, T* y);
  // dw[V, C]: overwritten (rows without an id become zero) or added to; rows that share an id add up in order of n, in
  // Acc, and are rounded once; on devices in sections of 128 (or more, where N * C is beyond 2^28), whose sums then add
  // up. workspace: embedding_workspace(N, V, C) bytes.
  void (*embedding_backward)(std::int64_t N, std::int64_t C, std::int64_t V, const std::int32_t* ids, const T* dy,
                             T* dw, bool add, void* workspace);
  // The same, not rounded: dw in Acc.
  void (*embedding_backward_unrounded)(std::int64_t N, std::int64_t C, std::int64_t V, const std::int32_t* ids,
                                       const T* dy, Acc* dw, bool add, void* workspace);

  // Softmax cross-entropy of logits[N, stride] over the first V columns. Rows with labels[n] < 0 count nothing. Adds
  // the sum of losses (in double, in row order on the CPU, in a fixed order elsewhere) to *total, and overwrites logits
  // with grad_scale * (softmax - onehot), zero in ignored rows and in columns V .. stride. soft_cap > 0: logits went
  // through the kernel of that name, and the gradients are those of what went in.
  void (*cross_entropy)(std::int64_t N, std::int64_t V, std::int64_t stride, double soft_cap, T* logits,
                        const std::int32_t* labels, double grad_scale, double* total);
  // The same sum, of other parts of a row and so otherwise rounded, without gradients; logits stay.
  void (*cross_entropy_loss)(std::int64_t N, std::int64_t V, std::int64_t stride, const T* logits,
                             const std::int32_t* labels, double* total);

  // accumulator += slot, or = slot if overwrite.
  void (*accumulate)(std::int64_t n, const T* slot, float* accumulator, bool overwrite);
  // The same with `count` slots, one after another; only the first overwrites. The list is on the host, what it points
  // to is not, and is not the sum. Each slot is rounded to `wire` before it is added in fp32, and each sum to
  // sum_dtype, f32 or bf16.
  void (*accumulate_all)(std::int64_t n, int count, const T* const* slots, DType wire, DType sum_dtype, void* sum,
                         bool overwrite);
  void (*cast_from_float)(std::int64_t n, const float* x, T* y);
  void (*cast_to_float)(std::int64_t n, const T* x, float* y);
};

// Optimizer and norm on flat runs: the same in every compute dtype.
struct OptimizerArguments {  // each optimizer reads those of its formula
  double learning_rate, beta1, beta2, eps, weight_decay;
  double bias_correction1, bias_correction2;  // 1 - beta^t
  double momentum = 0;
  bool nesterov = false;
};
// A sum with what rounding took from it (Knuth's two-sum): rounded to float it does not depend on how its terms were
// divided among ranks.
struct ExactSum {
  double high = 0, low = 0;
  __attribute__((always_inline)) constexpr void add(double term) {
    const double sum = high + term, part = sum - high;
    low += (high - (sum - part)) + (term - part);
    high = sum;
  }
  __attribute__((always_inline)) constexpr void add(const ExactSum& other) {
    add(other.high);
    low += other.low;
  }
  __attribute__((always_inline)) constexpr double value() const { return high - high == 0 ? high + low : high; }
};

// What becomes known behind the norm, in memory of where the kernel runs.
struct Update {
  double gradient_scale = 1;  // clip factor / loss scale
  bool skips = false;         // nothing moves
};

// Of gradients that are loss_scale times too large, the norm as it is clipped by and reported: in fp32, without a sign
// where it is NaN.
__attribute__((always_inline)) inline float norm_of(double squares, double loss_scale) {
  return __builtin_fabsf(static_cast<float>(__builtin_sqrt(squares) / loss_scale));
}
// torch's: 1 where the norm is no larger than max_norm, or not finite; max_norm 0: no clipping.
__attribute__((always_inline)) inline double clip_factor_of(float norm, double max_norm) {
  const bool clips = max_norm > 0 && norm > max_norm && norm - norm == 0;
  return clips ? max_norm / (static_cast<double>(norm) + 1e-6) : 1.0;
}
__attribute__((always_inline)) inline Update update_of(double squares, double loss_scale, double max_norm) {
  const float norm = norm_of(squares, loss_scale);
  return {clip_factor_of(norm, max_norm) / loss_scale, !(norm - norm == 0)};
}

// How state in bf16 is rounded: of element i of a run, in array 0 (master), 1 (m) or 2 (v), with the 16 bits number
// (first + i) % 8 of random_block(seed, stream + array, step * 2^36 + (first + i) / 8). A run's bits then depend on
// what is where in it alone.
struct StochasticRounding {
  std::uint64_t seed = 0, stream = 0;
  std::uint64_t step = 0;  // below 2^28
  std::int64_t first = 0;  // a multiple of 8, below 2^39
};

struct OptimizerRun {
  std::int64_t n = 0;
  void* master = nullptr;
  void *m = nullptr, *v = nullptr;  // the optimizer's first and second array, null where it has none
  const void* gradient = nullptr;
  DType gradient_dtype = DType::f32;  // or bf16
  void* weights = nullptr;            // null, or gets the new master, rounded
  DType weights_dtype = DType::bf16;  // or f16, or f32 where they lie apart from the master
  DType master_dtype = DType::f32;    // or bf16, where weights are bf16 too
  DType moment_dtype = DType::f32;    // of m and v, or bf16
  StochasticRounding rounding = {};   // of what is bf16
  bool is_fp32() const { return master_dtype == DType::f32 && moment_dtype == DType::f32; }
};

// One step on a run: updates master and the optimizer's state. In fp32, in the order of operations of the torch.optim
// class of that name.
using OptimizerKernel = void (*)(const OptimizerArguments& a, const Update* update, const OptimizerRun& run);

struct FlatTable {
  OptimizerKernel adamw;    // m, v; decoupled weight decay (Loshchilov and Hutter 2019)
  OptimizerKernel adam;     // m, v; weight decay added to the gradient, as in the two below
  OptimizerKernel sgd;      // m, the momentum's buffer, or null: no momentum
  OptimizerKernel adagrad;  // m, the sum of squares
  // m -> beta2 m + (1 - beta2) g, after a step of learning_rate along sign(beta1 m + (1 - beta1) g); decoupled weight
  // decay (Chen et al. 2023, algorithm 2). sign(0) is 0.
  OptimizerKernel lion;
  // Adds to *sum the squares of n elements, f32 or bf16. Of runs that are cut at multiples of 256 elements, the sums'
  // sum is that of the whole. NaN and Inf pass through.
  void (*sum_of_squares)(std::int64_t n, const void* x, DType dtype, ExactSum* sum);
  // *update = update_of(the sum of `count` parts of squares, in order, ...).
  void (*set_update)(int count, const ExactSum* squares, double loss_scale, double max_norm, Update* update);
  // out[B, T]: the first position that each may see when it sees `window` positions at most, itself among them, and
  // none before starts. past[b]: positions of the row's sequence before these; null: none.
  void (*first_in_window)(std::int64_t B, std::int64_t T, std::int64_t window, const std::int32_t* starts,
                          const std::int32_t* past, std::int32_t* out);
};

enum class Level : std::uint8_t { baseline, avx2, avx512 };
Level level();  // the best that the CPU has, or what TRIREME_CPU_LEVEL names (Error TR3060 when the CPU has not got it)
std::string_view to_string(Level level);

template <class T>
const Table<T>&
table();  // float, bfloat16, float16, double; of level(), or of the thread's device, which has no double
template <class T>
const Table<T>& table(Level level);  // for tests
const FlatTable& flat_table();
const FlatTable& flat_table(Level level);

// Bytes for forward and backward of the kernels that `threads` compute threads (num_threads() when they run, at most)
// share.
// attention_workspace: enough for any number of positions up to the shape's, and samples up to its B; what a forward
// leaves out is the backward's. Of the CPU, or of the thread's device (OnStream, ForDevice), as product_scratch.
std::int64_t attention_workspace(const AttentionShape& shape, DType dtype, bool backward, int threads);
std::int64_t embedding_workspace(std::int64_t N, std::int64_t V, std::int64_t C);
// Gives back what the libraries behind gemm keep for their next product.
void release_library_memory();
// What the libraries behind gemm (rounded: to dtype) and gemm_unrounded take for themselves in a product of these
// sizes: as seen of LibTorch 2.11 on Intel processors with AVX-512; AMD's (Zen 5) take less; an estimate elsewhere and
// for several threads. Nothing on devices.
std::int64_t product_scratch(DType dtype, bool rounded, std::int64_t m, std::int64_t n, std::int64_t k, int threads);
constexpr std::int64_t kAttentionMaxRows = 64;  // of queries in one product of attention
// cos_sin[positions][D] for `rope`: cosines and sines, times amplitude, of position * frequencies[i], i < D/2. Angles
// are rounded to float, as the models are trained and run elsewhere.
void make_rope_table(std::int64_t positions, std::int64_t D, const float* frequencies, double amplitude,
                     float* cos_sin);

// c[m, n] = a @ b, plus addend and bias unless they are null. a is [m, k], or [k, m] if a_transposed; b is [k, n], or
// [n, k] if b_transposed; lda, ldb, ldc are row strides. addend lies as c does, and may be c; bias[n] is added to every
// row, and ldc is n where it is given or where addend is not c. bf16 and fp16 products add up in fp32 and are rounded
// once, on the CPU also the sum of bias and addend. On the CPU through LibTorch (MKL, oneDNN with AMX).
template <class T>
void gemm(bool a_transposed, bool b_transposed, std::int64_t m, std::int64_t n, std::int64_t k, const T* a,
          std::int64_t lda, const T* b, std::int64_t ldb, T* c, std::int64_t ldc, const T* addend = nullptr,
          const T* bias = nullptr);
// The same with c in the accumulator's type, to which the product is added if add: bf16 and fp16 products stay in fp32.
// May be called from inside a parallel
// region, where it runs on one thread.
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
