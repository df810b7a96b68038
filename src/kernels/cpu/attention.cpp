// Causal grouped-query attention. A task takes a block of query rows against all the keys that any of them may see,
// which is one matrix product, one softmax over whole rows and one more product; keys that no row of the block may see
// (later ones, those of earlier documents) are left out. The products go through gemm_unrounded: 16-bit operands, fp32
// sums.
//
// Workspace of a thread: scores and their gradients [rows, T] in Acc, the same in T for the products to read, a block
// of head outputs [rows, D], the key and value gradients [T, D] and a row of dropout's factors, all in Acc.
#include "kernels/cpu/attention_workspace.h"
#include "kernels/cpu/random.h"
#include "kernels/cpu/softmax.h"
#include "kernels/level.h"

namespace trireme::kernels::TRIREME_LEVEL {
namespace {

// The shape, and the row of qkv.
struct Shape : AttentionShape {
  int64_t stride() const { return qkv_width(); }
};

// Query rows [begin, end) of a sequence, the first of which is position past, and the keys that they may see.
struct Rows {
  int64_t begin, end, past, first_key;
  int64_t count() const { return end - begin; }
  int64_t keys() const { return past + end - first_key; }
};

// The keys and values of a head by position.
template <class T>
struct KeyValues {
  const T *k, *v;
  int64_t stride;
};

TRIREME_INLINE Rows rows_of_block(int64_t block, int64_t past, const Shape& s, const int32_t* starts) {
  const int64_t rows = attention_block_rows(s.positions());
  Rows r{block * rows, smaller_of((block + 1) * rows, s.T), past, past + block * rows};
  for (int64_t t = r.begin; t < r.end; ++t) r.first_key = smaller_of(r.first_key, starts[t]);
  return r;
}

template <class T>
struct Scratch {
  Acc<T>*scores, *gradients, *head, *dk, *dv, *factors;
  T *weights, *weight_gradients;
};

template <class T>
TRIREME_INLINE Scratch<T> scratch_of_thread(void* workspace, const Shape& s, bool backward) {
  const AttentionWorkspace layout(s.positions(), s.D, sizeof(T), backward);
  char* base = static_cast<char*>(workspace) + omp_get_thread_num() * layout.bytes;
  return {reinterpret_cast<Acc<T>*>(base + layout.scores), reinterpret_cast<Acc<T>*>(base + layout.gradients),
          reinterpret_cast<Acc<T>*>(base + layout.head),   reinterpret_cast<Acc<T>*>(base + layout.dk),
          reinterpret_cast<Acc<T>*>(base + layout.dv),     reinterpret_cast<Acc<T>*>(base + layout.factors),
          reinterpret_cast<T*>(base + layout.weights),     reinterpret_cast<T*>(base + layout.weight_gradients)};
}

// step(task) for 0 .. tasks-1. Which thread takes which does not matter: tasks share no sums.
template <class Step>
TRIREME_INLINE void parallel_tasks(int64_t tasks, Step step) {
  const int64_t threads = smaller_of(omp_get_max_threads(), tasks);
  if (threads <= 1) {
    for (int64_t i = 0; i < tasks; ++i) step(i);
    return;
  }
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
  for (int64_t i = 0; i < tasks; ++i) step(i);
}

// The whole vectors [first, last) around the columns [begin, end) that a row may see.
struct Window {
  int64_t begin, end, first, last;
};

template <class T>
TRIREME_INLINE Window window_of(int64_t begin, int64_t end) {
  constexpr int64_t kLanes = kLanesOf<T>;
  return {begin, end, begin / kLanes * kLanes, (end + kLanes - 1) / kLanes * kLanes};
}

// Scores that the row may not see become minus infinity, and so their weights zero.
template <class S>
TRIREME_INLINE void mask(S* scores, const Window& w) {
  for (int64_t j = w.first; j < w.begin; ++j) scores[j] = -__builtin_inff();
  for (int64_t j = w.end; j < w.last; ++j) scores[j] = -__builtin_inff();
}

template <class T>
TRIREME_INLINE void clear_outside(T* row, const Window& w, int64_t columns) {
  memset(static_cast<void*>(row), 0, w.first * sizeof(T));
  if (w.last < columns) memset(static_cast<void*>(row + w.last), 0, (columns - w.last) * sizeof(T));
}

// scores become cap * tanh(scale * score / cap) on the whole vectors around the columns that the row may see.
template <class S>
TRIREME_INLINE void cap_scores(S* scores, const Window& w, S scale, S cap) {
  const auto inner = splat(scale / cap), caps = splat(cap);
  for (int64_t j = w.first; j < w.last; j += Vector<S>::kLanes) {
    store(scores + j, caps * tangent(load(scores + j) * inner));
  }
}

// What dropout multiplies the weights of one head and one query row by.
template <class T>
struct DropoutRow {
  const DropoutRule<Acc<T>>* rule;  // nullptr: nothing is dropped
  int64_t row;                      // h * T + t
  int64_t keys;                     // T rounded up to groups
  Acc<T>* memory;

  // factors[j] for the columns of the window, where column 0 is position first_key.
  TRIREME_INLINE const Acc<T>* fill(int64_t first_key, const Window& w) const {
    if (rule == nullptr) return nullptr;
    const int64_t begin = (first_key + w.first) / kDropoutGroup, end = (first_key + w.last - 1) / kDropoutGroup + 1;
    for (int64_t group = begin; group < end; ++group) {
      dropout_group(*rule, row * (keys / kDropoutGroup) + group, memory + (group - begin) * kDropoutGroup);
    }
    return memory + first_key - begin * kDropoutGroup;
  }
};

// weights = exp(scale * scores - largest) on the columns that the row may see, times factors, zero elsewhere. The sum
// is that of the weights before factors.
template <bool kDropped, class T>
TRIREME_INLINE Softmax<Acc<T>> softmax_row(Acc<T>* scores, const Window& w, int64_t columns, Acc<T> scale, T* weights,
                                           const Acc<T>* factors) {
  constexpr int64_t kLanes = kLanesOf<T>;
  mask(scores, w);
  auto largest = load(scores + w.first);
  for (int64_t j = w.first + kLanes; j < w.last; j += kLanes) largest = larger(load(scores + j), largest);
  const Acc<T> top = scale * max_of_lanes(largest);
  const auto scales = splat(scale);
  const auto shift = splat(-top);
  VectorOf<T> sum = {};
  for (int64_t j = w.first; j < w.last; j += kLanes) {
    const auto weight = exponential(multiply_add(load(scores + j), scales, shift));
    sum = sum + weight;
    if constexpr (kDropped) {
      store(weights + j, weight * load(factors + j));
    } else {
      store(weights + j, weight);
    }
  }
  clear_outside(weights, w, columns);
  return {top, sum_of_lanes(sum)};
}

template <class T>
void forward_block(const Shape& s, const Rows& r, const T* q, const KeyValues<T>& kv, const int32_t* starts,
                   DropoutRow<T> dropout, T* out, Acc<T>* lse, const Scratch<T>& scratch) {
  const int64_t keys = r.keys(), row_stride = attention_row_stride(keys);
  gemm_unrounded(false, true, r.count(), keys, s.D, q + r.begin * s.stride(), s.stride(),
                 kv.k + r.first_key * kv.stride, kv.stride, scratch.scores, row_stride, false);
  const bool capped = s.soft_cap > 0;
  const auto scale = static_cast<Acc<T>>(s.scale);
  Acc<T> inverse[kAttentionMaxRows];
  for (int64_t i = 0; i < r.count(); ++i) {
    const int64_t t = r.begin + i;
    const Window window = window_of<T>(starts[t] - r.first_key, r.past + t + 1 - r.first_key);
    Acc<T>* scores = scratch.scores + i * row_stride;
    T* weights = scratch.weights + i * row_stride;
    if (capped) cap_scores(scores, window, scale, static_cast<Acc<T>>(s.soft_cap));
    const Acc<T> left = capped ? 1 : scale;
    const Acc<T>* factors = dropout.fill(r.first_key, window);
    ++dropout.row;
    const Softmax<Acc<T>> softmax = factors == nullptr
                                        ? softmax_row<false>(scores, window, keys, left, weights, factors)
                                        : softmax_row<true>(scores, window, keys, left, weights, factors);
    inverse[i] = 1 / softmax.sum;
    lse[t] = softmax.largest + static_cast<Acc<T>>(::log(static_cast<double>(softmax.sum)));
  }
  gemm_unrounded(false, false, r.count(), s.D, keys, static_cast<const T*>(scratch.weights), row_stride,
                 kv.v + r.first_key * kv.stride, kv.stride, scratch.head, s.D, false);
  for (int64_t i = 0; i < r.count(); ++i) {
    const auto factor = splat(inverse[i]);
    for_each_vector<kLanesOf<T>>(s.D, [&](int64_t d, auto lanes) {
      store(out + (r.begin + i) * s.H * s.D + d, load(scratch.head + i * s.D + d, lanes) * factor, lanes);
    });
  }
}

// Turns scores into weights p = exp(scale * score - lse) and their gradients into scale * p * (gradient - delta), where
// delta = sum over d of dout * out. Under dropout the value saw p * factor, whose gradient is the one given. Capped:
// scores have been scaled and capped, scale comes from within the cap.
template <bool kCapped, bool kDropped, class T>
TRIREME_INLINE void backward_row(Acc<T>* scores, const Acc<T>* gradients, const Window& w, int64_t columns,
                                 Acc<T> scale, Acc<T> inverse_cap, Acc<T> lse, Acc<T> delta, const Acc<T>* factors,
                                 T* weights, T* weight_gradients) {
  constexpr int64_t kLanes = kLanesOf<T>;
  mask(scores, w);
  const auto scales = splat(scale);
  const auto shift = splat(-lse);
  const auto deltas = splat(delta);
  for (int64_t j = w.first; j < w.last; j += kLanes) {
    const auto score = load(scores + j);
    const auto p = exponential(kCapped ? score + shift : multiply_add(score, scales, shift));
    auto gradient = load(gradients + j);
    if constexpr (kDropped) {
      const auto factor = load(factors + j);
      store(weights + j, p * factor);
      gradient = gradient * factor;
    } else {
      store(weights + j, p);
    }
    gradient = p * (gradient - deltas) * scales;
    if constexpr (kCapped) {
      const auto tangent = score * splat(inverse_cap);
      gradient = gradient * larger(splat(Acc<T>{1}) - tangent * tangent, splat(Acc<T>{0}));  // masked ones: not -inf
    }
    store(weight_gradients + j, gradient);
  }
  clear_outside(weights, w, columns);
  clear_outside(weight_gradients, w, columns);
}

template <class T>
void store_rows(int64_t rows, int64_t D, const Acc<T>* from, T* to, int64_t stride) {
  for (int64_t i = 0; i < rows; ++i) {
    for_each_vector<kLanesOf<T>>(
        D, [=](int64_t d, auto lanes) { store(to + i * stride + d, load(from + i * D + d, lanes), lanes); });
  }
}

template <class T>
void backward_block(const Shape& s, const Rows& r, const T* q, const T* k, const T* v, const int32_t* starts,
                    DropoutRow<T> dropout, const T* out, const Acc<T>* lse, const T* dout, T* dq,
                    const Scratch<T>& scratch) {
  const int64_t keys = r.keys(), row_stride = attention_row_stride(keys), stride = s.stride(), width = s.H * s.D;
  const T* block_q = q + r.begin * stride;
  const T* block_k = k + r.first_key * stride;
  const T* block_dout = dout + r.begin * width;
  const auto scale = static_cast<Acc<T>>(s.scale);
  gemm_unrounded(false, true, r.count(), keys, s.D, block_q, stride, block_k, stride, scratch.scores, row_stride,
                 false);
  gemm_unrounded(false, true, r.count(), keys, s.D, block_dout, width, v + r.first_key * stride, stride,
                 scratch.gradients, row_stride, false);
  for (int64_t i = 0; i < r.count(); ++i) {
    const int64_t t = r.begin + i, row = i * row_stride;
    VectorOf<T> products = {};
    for_each_vector<kLanesOf<T>>(s.D, [&](int64_t d, auto lanes) {
      products = multiply_add(load(out + t * width + d, lanes), load(dout + t * width + d, lanes), products);
    });
    const Window window = window_of<T>(starts[t] - r.first_key, t + 1 - r.first_key);
    const Acc<T>* factors = dropout.fill(r.first_key, window);
    ++dropout.row;
    if (s.soft_cap > 0) cap_scores(scratch.scores + row, window, scale, static_cast<Acc<T>>(s.soft_cap));
    const auto turn = s.soft_cap > 0
                          ? (factors != nullptr ? backward_row<true, true, T> : backward_row<true, false, T>)
                          : (factors != nullptr ? backward_row<false, true, T> : backward_row<false, false, T>);
    turn(scratch.scores + row, scratch.gradients + row, window, keys, scale, static_cast<Acc<T>>(1 / s.soft_cap),
         lse[t], sum_of_lanes(products), factors, scratch.weights + row, scratch.weight_gradients + row);
  }
  const T* weights = scratch.weights;
  const T* weight_gradients = scratch.weight_gradients;
  gemm_unrounded(false, false, r.count(), s.D, keys, weight_gradients, row_stride, block_k, stride, scratch.head, s.D,
                 false);
  store_rows(r.count(), s.D, scratch.head, dq + r.begin * stride, stride);
  gemm_unrounded(true, false, keys, s.D, r.count(), weight_gradients, row_stride, block_q, stride,
                 scratch.dk + r.first_key * s.D, s.D, true);
  gemm_unrounded(true, false, keys, s.D, r.count(), weights, row_stride, block_dout, width,
                 scratch.dv + r.first_key * s.D, s.D, true);
}

// The dropout of sequence b's head h, from query row 0 on.
template <class T>
TRIREME_INLINE DropoutRow<T> dropout_row(const Shape& s, const DropoutRule<Acc<T>>* rule, int64_t h,
                                         const Scratch<T>& scratch) {
  return {rule, h * s.T, (s.T + kDropoutGroup - 1) / kDropoutGroup * kDropoutGroup, scratch.factors};
}

// step(block, head, sequence) for all query blocks.
template <class Step>
TRIREME_INLINE void parallel_blocks(const Shape& s, Step step) {
  const int64_t rows = attention_block_rows(s.positions()), blocks = (s.T + rows - 1) / rows;
  parallel_tasks(s.B * s.H * blocks, [=](int64_t task) {
    step(blocks - 1 - task % blocks, task / blocks % s.H, task / blocks / s.H);  // the longest first
  });
}

// Calls step(nullptr), or step(the rule for sequence b).
template <class T, class Step>
TRIREME_INLINE void with_rule(const Dropout& dropout, int64_t b, Step step) {
  if (dropout.probability == 0 || dropout.keys == nullptr) return step(static_cast<DropoutRule<Acc<T>>*>(nullptr));
  DropoutRule<Acc<T>> rule(dropout, b);
  step(&rule);
}

}  // namespace

template <class T>
void attention_forward(const AttentionShape& shape, const Dropout& dropout, const T* qkv, const int32_t* starts, T* out,
                       Acc<T>* lse, void* workspace) {
  const Shape s{shape};
  const Dropout drop = dropout;
  parallel_blocks(s, [=](int64_t block, int64_t h, int64_t b) {
    const T* sequence = qkv + b * s.T * s.stride();
    const int64_t kv = s.H + h / (s.H / s.K);
    const Scratch<T> scratch = scratch_of_thread<T>(workspace, s, false);
    with_rule<T>(drop, b, [&](const DropoutRule<Acc<T>>* rule) {
      const Rows r = rows_of_block(block, 0, s, starts + b * s.T);
      DropoutRow<T> dropped = dropout_row<T>(s, rule, h, scratch);
      dropped.row += r.begin;
      forward_block(s, r, sequence + h * s.D, {sequence + kv * s.D, sequence + (kv + s.K) * s.D, s.stride()},
                    starts + b * s.T, dropped, out + (b * s.T * s.H + h) * s.D, lse + (b * s.H + h) * s.T, scratch);
    });
  });
}

template <class T>
void attention_cached(const AttentionShape& shape, const T* qkv, std::byte* const* key_values, const int32_t* past,
                      const int32_t* starts, T* out, Acc<T>* lse, void* workspace) {
  const Shape s{shape};
  const int64_t kept = 2 * s.K * s.D;
  for (int64_t n = 0; n < s.B * s.T; ++n) {
    T* cache = reinterpret_cast<T*>(key_values[n / s.T]);
    memcpy(cache + (past[n / s.T] + n % s.T) * kept, qkv + (n + 1) * s.stride() - kept, kept * sizeof(T));
  }
  parallel_blocks(s, [=](int64_t block, int64_t h, int64_t b) {
    const T* k = reinterpret_cast<const T*>(key_values[b]) + h / (s.H / s.K) * s.D;
    const Scratch<T> scratch = scratch_of_thread<T>(workspace, s, false);
    const Rows r = rows_of_block(block, past[b], s, starts + b * s.T);
    forward_block(s, r, qkv + b * s.T * s.stride() + h * s.D, {k, k + s.K * s.D, kept}, starts + b * s.T,
                  dropout_row<T>(s, nullptr, h, scratch), out + (b * s.T * s.H + h) * s.D, lse + (b * s.H + h) * s.T,
                  scratch);
  });
}

template <class T>
void attention_backward(const AttentionShape& shape, const Dropout& dropout, const T* qkv, const int32_t* starts,
                        const T* out, const Acc<T>* lse, const T* dout, T* dqkv, void* workspace) {
  const Shape s{shape};
  const Dropout drop = dropout;
  const int64_t rows = attention_block_rows(s.T), blocks = (s.T + rows - 1) / rows;
  // One task a key/value head: the heads that share it add to its gradients in a fixed order.
  parallel_tasks(s.B * s.K, [=](int64_t task) {
    const int64_t b = task / s.K, kv = task % s.K, shared = s.H / s.K;
    const T* sequence = qkv + b * s.T * s.stride();
    T* dsequence = dqkv + b * s.T * s.stride();
    const Scratch<T> scratch = scratch_of_thread<T>(workspace, s, true);
    memset(scratch.dk, 0, s.T * s.D * sizeof(Acc<T>));
    memset(scratch.dv, 0, s.T * s.D * sizeof(Acc<T>));
    with_rule<T>(drop, b, [&](const DropoutRule<Acc<T>>* rule) {
      for (int64_t h = kv * shared; h < (kv + 1) * shared; ++h) {
        const int64_t head = (b * s.T * s.H + h) * s.D;
        for (int64_t block = 0; block < blocks; ++block) {
          const Rows r = rows_of_block(block, 0, s, starts + b * s.T);
          DropoutRow<T> dropped = dropout_row<T>(s, rule, h, scratch);
          dropped.row += r.begin;
          backward_block(s, r, sequence + h * s.D, sequence + (s.H + kv) * s.D, sequence + (s.H + s.K + kv) * s.D,
                         starts + b * s.T, dropped, out + head, lse + (b * s.H + h) * s.T, dout + head,
                         dsequence + h * s.D, scratch);
        }
      }
    });
    store_rows<T>(s.T, s.D, scratch.dk, dsequence + (s.H + kv) * s.D, s.stride());
    store_rows<T>(s.T, s.D, scratch.dv, dsequence + (s.H + s.K + kv) * s.D, s.stride());
  });
}

#define TRIREME_INSTANCES(T)                                                                                         \
  template void attention_forward(const AttentionShape&, const Dropout&, const T*, const int32_t*, T*, Acc<T>*,      \
                                  void*);                                                                            \
  template void attention_cached(const AttentionShape&, const T*, std::byte* const*, const int32_t*, const int32_t*, \
                                 T*, Acc<T>*, void*);                                                                \
  template void attention_backward(const AttentionShape&, const Dropout&, const T*, const int32_t*, const T*,        \
                                   const Acc<T>*, const T*, T*, void*);
TRIREME_INSTANCES(float)
TRIREME_INSTANCES(bfloat16)
TRIREME_INSTANCES(float16)
TRIREME_INSTANCES(double)

}  // namespace trireme::kernels::TRIREME_LEVEL
