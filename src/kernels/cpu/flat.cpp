// The optimizers' and the norm's kernels on flat runs.
#include "kernels/cpu/random.h"
#include "kernels/level.h"
#include "kernels/stochastic.h"

namespace trireme::kernels::TRIREME_LEVEL {

namespace {

TRIREME_INLINE Vector<float> scalar(double value) {
  return splat(static_cast<float>(value));
}

// step(i, lanes) for every vector of [0, n), on all compute threads.
template <class Step>
TRIREME_INLINE void for_each_element(int64_t n, Step step) {
  parallel_elements(n, [=](int64_t begin, int64_t end) {
    for_each_vector<Vector<float>::kLanes>(end - begin, [=](int64_t i, auto lanes) { step(begin + i, lanes); });
  });
}

struct Nothing {};  // in place of the weights' type: there are none to write

// new weight = formula(i, lanes, weight, gradient * scale), for every vector of the run.
template <class G, class W, class Formula>
TRIREME_INLINE void update_typed(const OptimizerRun& run, double gradient_scale, Formula formula) {
  auto* master = static_cast<float*>(run.master);
  const G* gradient = static_cast<const G*>(run.gradient);
  W* weights = static_cast<W*>(run.weights);
  const auto scale = scalar(gradient_scale);
  for_each_element(run.n, [=](int64_t i, auto lanes) {
    const auto next = formula(i, lanes, load(master + i, lanes), load(gradient + i, lanes) * scale);
    store(master + i, next, lanes);
    if constexpr (sizeof(W) > sizeof(Nothing)) store(weights + i, next, lanes);
  });
}

template <class G, class Formula>
TRIREME_INLINE void update_from(const OptimizerRun& run, double scale, Formula formula) {
  if (run.weights == nullptr) return update_typed<G, Nothing>(run, scale, formula);
  if (run.weights_dtype == DType::f16) return update_typed<G, float16>(run, scale, formula);
  if (run.weights_dtype == DType::bf16) return update_typed<G, bfloat16>(run, scale, formula);
  return update_typed<G, float>(run, scale, formula);
}

template <class Formula>
TRIREME_INLINE void update_elements(const Update* update, const OptimizerRun& run, Formula formula) {
  const double scale = update->gradient_scale;
  if (run.gradient_dtype == DType::bf16) return update_from<bfloat16>(run, scale, formula);
  update_from<float>(run, scale, formula);
}

constexpr int64_t kPart = 512;  // elements of state in bf16 that are floats at a time

// An array of the state in floats: where it lies if it is of floats, or a copy, which goes back rounded.
class InFloats {
 public:
  InFloats(void* array, DType dtype, int64_t begin, int64_t n) : n_(n) {
    if (array == nullptr) return;
    if (dtype == DType::f32) {
      data_ = static_cast<float*>(array) + begin;
      return;
    }
    narrow_ = static_cast<bfloat16*>(array) + begin;
    data_ = copy_;
    for_each_vector<Vector<float>::kLanes>(
        n, [&](int64_t i, auto lanes) { store(copy_ + i, load(narrow_ + i, lanes), lanes); });
  }
  float* data() const { return data_; }
  void write_back(const StochasticRounding& rounding, StateArray array, int64_t begin) const {
    if (narrow_ == nullptr) return;
    // All numbers, then all elements: loops that the compiler turns into vectors.
    constexpr int kBlocks = kPart / kOfBlock, kLanes = kRegisterBytes / 4;
    alignas(64) uint32_t by_word[4][kBlocks], words[kBlocks][4];
    const uint64_t stream = random_stream(rounding, array), first = random_index(rounding, begin);
    for (int b = 0; b < kBlocks; b += kLanes) {
      const WordBlock blocks = random_blocks(rounding.seed, stream, first + static_cast<uint64_t>(b));
      for (int w = 0; w < 4; ++w) memcpy(by_word[w] + b, &blocks.word[w], sizeof(blocks.word[w]));
    }
    for (int b = 0; b < kBlocks; ++b) {
      for (int w = 0; w < 4; ++w) words[b][w] = by_word[w][b];
    }
    uint16_t random[kPart];
    memcpy(random, words, sizeof(random));
    for (int64_t i = 0; i < n_; ++i) narrow_[i].bits = round_stochastically(copy_[i], random[i]);
  }

 private:
  int64_t n_;
  float* data_ = nullptr;
  bfloat16* narrow_ = nullptr;
  alignas(64) float copy_[kPart];
};

// step, or where state is in bf16 the same on floats, part by part.
void update_state(const OptimizerArguments& a, const Update* update, const OptimizerRun& run, OptimizerKernel step) {
  if (update->skips) return;
  if (run.is_fp32()) return step(a, update, run);
  const int64_t gradient_bytes = size_of(run.gradient_dtype), weight_bytes = size_of(run.weights_dtype);
  parallel_elements(run.n, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kPart) {
      const int64_t n = smaller_of(kPart, end - i);
      const InFloats master(run.master, run.master_dtype, i, n), m(run.m, run.moment_dtype, i, n),
          v(run.v, run.moment_dtype, i, n);
      OptimizerRun part{n,
                        master.data(),
                        m.data(),
                        v.data(),
                        static_cast<const std::byte*>(run.gradient) + i * gradient_bytes,
                        run.gradient_dtype};
      void* weights = run.weights == nullptr ? nullptr : static_cast<std::byte*>(run.weights) + i * weight_bytes;
      const bool is_copy = run.master_dtype == DType::bf16;  // of the rounded master
      if (!is_copy) {
        part.weights = weights;
        part.weights_dtype = run.weights_dtype;
      }
      step(a, update, part);
      master.write_back(run.rounding, StateArray::master, i);
      m.write_back(run.rounding, StateArray::m, i);
      v.write_back(run.rounding, StateArray::v, i);
      if (is_copy && weights != nullptr) memcpy(weights, static_cast<bfloat16*>(run.master) + i, n * weight_bytes);
    }
  });
}

// decoupled: weight decay shrinks the weights (AdamW); otherwise it is part of the gradient (Adam).
template <bool decoupled>
void adam_step(const OptimizerArguments& a, const Update* update, const OptimizerRun& run) {
  auto *m = static_cast<float*>(run.m), *v = static_cast<float*>(run.v);
  const auto keep = scalar(1 - a.learning_rate * a.weight_decay);
  const auto decay = scalar(a.weight_decay);
  const auto rate1 = scalar(1 - a.beta1);
  const auto beta2 = scalar(a.beta2);
  const auto rate2 = scalar(1 - a.beta2);
  const auto root_correction2 = scalar(::sqrt(a.bias_correction2));
  const auto eps = scalar(a.eps);
  const auto step = scalar(-a.learning_rate / a.bias_correction1);
  update_elements(update, run, [=](int64_t i, auto lanes, Vector<float> weight, Vector<float> g) {
    if constexpr (decoupled) {
      weight = weight * keep;
    } else {
      g = multiply_add(weight, decay, g);
    }
    const auto old_m = load(m + i, lanes);
    const auto new_m = multiply_add(g - old_m, rate1, old_m);
    const auto new_v = multiply_add(g * g, rate2, load(v + i, lanes) * beta2);
    const auto denominator = square_root(new_v) / root_correction2 + eps;
    store(m + i, new_m, lanes);
    store(v + i, new_v, lanes);
    return multiply_add(new_m / denominator, step, weight);
  });
}

void sgd_step(const OptimizerArguments& a, const Update* update, const OptimizerRun& run) {
  auto* m = static_cast<float*>(run.m);
  const auto decay = scalar(a.weight_decay);
  const auto momentum = scalar(a.momentum);
  const auto step = scalar(-a.learning_rate);
  const bool nesterov = a.nesterov;
  update_elements(update, run, [=](int64_t i, auto lanes, Vector<float> weight, Vector<float> g) {
    g = multiply_add(weight, decay, g);
    if (m != nullptr) {
      const auto buffer = multiply_add(load(m + i, lanes), momentum, g);
      store(m + i, buffer, lanes);
      g = nesterov ? multiply_add(buffer, momentum, g) : buffer;
    }
    return multiply_add(g, step, weight);
  });
}

void adagrad_step(const OptimizerArguments& a, const Update* update, const OptimizerRun& run) {
  auto* m = static_cast<float*>(run.m);
  const auto decay = scalar(a.weight_decay);
  const auto eps = scalar(a.eps);
  const auto step = scalar(-a.learning_rate);
  update_elements(update, run, [=](int64_t i, auto lanes, Vector<float> weight, Vector<float> g) {
    g = multiply_add(weight, decay, g);
    const auto sum = multiply_add(g, g, load(m + i, lanes));
    store(m + i, sum, lanes);
    return multiply_add(g / (square_root(sum) + eps), step, weight);
  });
}

void lion_step(const OptimizerArguments& a, const Update* update, const OptimizerRun& run) {
  auto* m = static_cast<float*>(run.m);
  const auto keep = scalar(1 - a.learning_rate * a.weight_decay);
  const auto beta1 = scalar(a.beta1);
  const auto rate1 = scalar(1 - a.beta1);
  const auto beta2 = scalar(a.beta2);
  const auto rate2 = scalar(1 - a.beta2);
  const auto step = scalar(-a.learning_rate);
  update_elements(update, run, [=](int64_t i, auto lanes, Vector<float> weight, Vector<float> g) {
    const auto old_m = load(m + i, lanes);
    const auto direction = sign(multiply_add(g, rate1, old_m * beta1));
    store(m + i, multiply_add(g, rate2, old_m * beta2), lanes);
    return multiply_add(direction, step, weight * keep);
  });
}

}  // namespace

void adamw(const OptimizerArguments& a, const Update* update, const OptimizerRun& run) {
  update_state(a, update, run, adam_step<true>);
}

void adam(const OptimizerArguments& a, const Update* update, const OptimizerRun& run) {
  update_state(a, update, run, adam_step<false>);
}

void sgd(const OptimizerArguments& a, const Update* update, const OptimizerRun& run) {
  update_state(a, update, run, sgd_step);
}

void adagrad(const OptimizerArguments& a, const Update* update, const OptimizerRun& run) {
  update_state(a, update, run, adagrad_step);
}

void lion(const OptimizerArguments& a, const Update* update, const OptimizerRun& run) {
  update_state(a, update, run, lion_step);
}

namespace {

constexpr int64_t kChunk = 256;  // wherever ranks' slices begin, a chunk begins

TRIREME_INLINE double value_of(const float* x) {
  return *x;
}
TRIREME_INLINE double value_of(const bfloat16* x) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(x->bits) << 16);
}

template <class T>
TRIREME_INLINE double sum_of_chunk(int64_t n, const T* x) {
  constexpr int64_t kLanes = Vector<double>::kLanes;
  Vector<double> even = {}, odd = {};
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    const auto a = load_double(x + i), b = load_double(x + i + kLanes);
    even = multiply_add(a, a, even);
    odd = multiply_add(b, b, odd);
  }
  double rest = 0;  // squares of floats are exact in double, so the fused form changes nothing above either
  for (; i < n; ++i) {
    const double value = value_of(x + i);
    rest += value * value;
  }
  return sum_of_lanes(even + odd) + rest;
}

template <class T>
TRIREME_INLINE ExactSum sum_of_block(int64_t n, const T* x) {
  ExactSum sum;
  for (int64_t i = 0; i < n; i += kChunk) sum.add(sum_of_chunk(smaller_of(n - i, kChunk), x + i));
  return sum;
}

template <class T>
TRIREME_INLINE void add_squares(int64_t n, const T* x, ExactSum& total) {
  constexpr int64_t kBlock = 64 * kChunk, kBlocks = 64;
  for (int64_t first = 0; first < n; first += kBlock * kBlocks) {
    const T* run = x + first;
    const int64_t left = smaller_of(n - first, kBlock * kBlocks);
    const int64_t blocks = (left + kBlock - 1) / kBlock;
    ExactSum sums[kBlocks];
    parallel_ranges(blocks, left, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b)
        sums[b] = sum_of_block(smaller_of(kBlock, left - b * kBlock), run + b * kBlock);
    });
    for (int64_t b = 0; b < blocks; ++b) total.add(sums[b]);
  }
}

}  // namespace

void sum_of_squares(int64_t n, const void* x, DType dtype, ExactSum* sum) {
  if (dtype == DType::bf16) return add_squares(n, static_cast<const bfloat16*>(x), *sum);
  add_squares(n, static_cast<const float*>(x), *sum);
}

}  // namespace trireme::kernels::TRIREME_LEVEL
