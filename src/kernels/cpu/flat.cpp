// The optimizers' and the norm's kernels on fp32 flat runs.
#include "kernels/cpu/level.h"
#include "kernels/cpu/vector.h"

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

// decoupled: weight decay shrinks the weights (AdamW); otherwise it is part of the gradient (Adam).
template <bool decoupled>
TRIREME_INLINE void adam_step(int64_t n, const OptimizerArguments& a, float* master, float* m, float* v,
                              const float* gradient) {
  const auto keep = scalar(1 - a.learning_rate * a.weight_decay);
  const auto decay = scalar(a.weight_decay);
  const auto scale = scalar(a.gradient_scale);
  const auto rate1 = scalar(1 - a.beta1);
  const auto beta2 = scalar(a.beta2);
  const auto rate2 = scalar(1 - a.beta2);
  const auto root_correction2 = scalar(::sqrt(a.bias_correction2));
  const auto eps = scalar(a.eps);
  const auto step = scalar(-a.learning_rate / a.bias_correction1);
  for_each_element(n, [=](int64_t i, auto lanes) {
    auto weight = load(master + i, lanes);
    auto g = load(gradient + i, lanes) * scale;
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
    store(master + i, multiply_add(new_m / denominator, step, weight), lanes);
  });
}

}  // namespace

void adamw(int64_t n, const OptimizerArguments& a, float* master, float* m, float* v, const float* gradient) {
  adam_step<true>(n, a, master, m, v, gradient);
}

void adam(int64_t n, const OptimizerArguments& a, float* master, float* m, float* v, const float* gradient) {
  adam_step<false>(n, a, master, m, v, gradient);
}

void sgd(int64_t n, const OptimizerArguments& a, float* master, float* m, float*, const float* gradient) {
  const auto scale = scalar(a.gradient_scale);
  const auto decay = scalar(a.weight_decay);
  const auto momentum = scalar(a.momentum);
  const auto step = scalar(-a.learning_rate);
  const bool nesterov = a.nesterov;
  for_each_element(n, [=](int64_t i, auto lanes) {
    const auto weight = load(master + i, lanes);
    auto g = multiply_add(weight, decay, load(gradient + i, lanes) * scale);
    if (m != nullptr) {
      const auto buffer = multiply_add(load(m + i, lanes), momentum, g);
      store(m + i, buffer, lanes);
      g = nesterov ? multiply_add(buffer, momentum, g) : buffer;
    }
    store(master + i, multiply_add(g, step, weight), lanes);
  });
}

void adagrad(int64_t n, const OptimizerArguments& a, float* master, float* m, float*, const float* gradient) {
  const auto scale = scalar(a.gradient_scale);
  const auto decay = scalar(a.weight_decay);
  const auto eps = scalar(a.eps);
  const auto step = scalar(-a.learning_rate);
  for_each_element(n, [=](int64_t i, auto lanes) {
    const auto weight = load(master + i, lanes);
    const auto g = multiply_add(weight, decay, load(gradient + i, lanes) * scale);
    const auto sum = multiply_add(g, g, load(m + i, lanes));
    store(m + i, sum, lanes);
    store(master + i, multiply_add(g / (square_root(sum) + eps), step, weight), lanes);
  });
}

void lion(int64_t n, const OptimizerArguments& a, float* master, float* m, float*, const float* gradient) {
  const auto keep = scalar(1 - a.learning_rate * a.weight_decay);
  const auto scale = scalar(a.gradient_scale);
  const auto beta1 = scalar(a.beta1);
  const auto rate1 = scalar(1 - a.beta1);
  const auto beta2 = scalar(a.beta2);
  const auto rate2 = scalar(1 - a.beta2);
  const auto step = scalar(-a.learning_rate);
  for_each_element(n, [=](int64_t i, auto lanes) {
    const auto g = load(gradient + i, lanes) * scale;
    const auto old_m = load(m + i, lanes);
    const auto direction = sign(multiply_add(g, rate1, old_m * beta1));
    store(m + i, multiply_add(g, rate2, old_m * beta2), lanes);
    store(master + i, multiply_add(direction, step, load(master + i, lanes) * keep), lanes);
  });
}

namespace {

constexpr int64_t kChunk = 256;  // wherever ranks' slices begin, a chunk begins

TRIREME_INLINE double sum_of_chunk(int64_t n, const float* x) {
  constexpr int64_t kLanes = Vector<double>::kLanes;
  Vector<double> even = {}, odd = {};
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    const auto a = load_double(x + i), b = load_double(x + i + kLanes);
    even = multiply_add(a, a, even);
    odd = multiply_add(b, b, odd);
  }
  double rest = 0;  // squares of floats are exact in double, so the fused form changes nothing above either
  for (; i < n; ++i) rest += static_cast<double>(x[i]) * x[i];
  return sum_of_lanes(even + odd) + rest;
}

TRIREME_INLINE ExactSum sum_of_block(int64_t n, const float* x) {
  ExactSum sum;
  for (int64_t i = 0; i < n; i += kChunk) sum.add(sum_of_chunk(smaller_of(n - i, kChunk), x + i));
  return sum;
}

}  // namespace

ExactSum sum_of_squares(int64_t n, const float* x) {
  constexpr int64_t kBlock = 64 * kChunk, kBlocks = 64;
  ExactSum total;
  for (int64_t first = 0; first < n; first += kBlock * kBlocks) {
    const float* run = x + first;
    const int64_t left = smaller_of(n - first, kBlock * kBlocks);
    const int64_t blocks = (left + kBlock - 1) / kBlock;
    ExactSum sums[kBlocks];
    parallel_ranges(blocks, left, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b)
        sums[b] = sum_of_block(smaller_of(kBlock, left - b * kBlock), run + b * kBlock);
    });
    for (int64_t b = 0; b < blocks; ++b) total.add(sums[b]);
  }
  return total;
}

}  // namespace trireme::kernels::TRIREME_LEVEL
