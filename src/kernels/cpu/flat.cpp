// The optimizer's and the norm's kernels on fp32 flat runs.
#include "kernels/cpu/level.h"
#include "kernels/cpu/vector.h"

namespace trireme::kernels::TRIREME_LEVEL {

void adamw(int64_t n, const AdamWArguments& a, float* master, float* m, float* v, const float* gradient) {
  const auto scalar = [](double value) { return splat(static_cast<float>(value)); };
  const auto keep = scalar(1 - a.learning_rate * a.weight_decay);
  const auto scale = scalar(a.gradient_scale);
  const auto rate1 = scalar(1 - a.beta1);
  const auto beta2 = scalar(a.beta2);
  const auto rate2 = scalar(1 - a.beta2);
  const auto root_correction2 = scalar(::sqrt(a.bias_correction2));
  const auto eps = scalar(a.eps);
  const auto step = scalar(-a.learning_rate / a.bias_correction1);
  parallel_elements(n, [=](int64_t begin, int64_t end) {
    for_each_vector<Vector<float>::kLanes>(end - begin, [=](int64_t i, auto lanes) {
      i += begin;
      const auto g = load(gradient + i, lanes) * scale;
      const auto old_m = load(m + i, lanes);
      const auto new_m = multiply_add(g - old_m, rate1, old_m);
      const auto new_v = multiply_add(g * g, rate2, load(v + i, lanes) * beta2);
      const auto denominator = square_root(new_v) / root_correction2 + eps;
      store(m + i, new_m, lanes);
      store(v + i, new_v, lanes);
      store(master + i, multiply_add(new_m / denominator, step, load(master + i, lanes) * keep), lanes);
    });
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
