#include "optim/law.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace trireme::optim {

namespace {

// From 1 to 0 as x goes from 0 to 1.
double half_cosine(double x) {
  return 0.5 * (1.0 + std::cos(std::numbers::pi * x));
}

double warmup_then_fall(const Law& law, std::int64_t step) {
  if (step <= law.warmup_steps) return law.peak * static_cast<double>(step) / static_cast<double>(law.warmup_steps);
  if (law.kind == config::LearningRateLaw::constant) return law.peak;
  const std::int64_t decay_steps = law.total_steps - law.warmup_steps;
  if (step >= law.total_steps || decay_steps <= 0) return law.minimum;
  const double progress = static_cast<double>(step - law.warmup_steps) / static_cast<double>(decay_steps);
  const double share = law.kind == config::LearningRateLaw::linear ? 1.0 - progress : half_cosine(progress);
  return law.minimum + (law.peak - law.minimum) * share;
}

std::int64_t warmup_length(const Law& law) {
  return std::max<std::int64_t>(law.warmup_steps, 2);
}

// 0 <= i < warmup_length()
double warmup_share(const Law& law, std::int64_t i) {
  const auto at = static_cast<double>(i), length = static_cast<double>(warmup_length(law));
  return law.warmup.type == config::WarmupType::linear ? at / length : std::log(at + 1.0) / std::log(length);
}

double warmup_and_decay(const Law& law, std::int64_t i) {
  const std::int64_t length = warmup_length(law);
  double share = 1.0;
  if (i < length) {
    share = i < 0 ? 0.0 : warmup_share(law, i);
  } else if (law.kind == config::LearningRateLaw::warmup_decay) {
    const std::int64_t decay_steps = std::max<std::int64_t>(law.total_steps - length, 1);
    share = std::max(0.0, static_cast<double>(law.total_steps - i) / static_cast<double>(decay_steps));
  }
  return law.warmup.minimum + (law.peak - law.warmup.minimum) * share;
}

double warmup_and_cosine(const Law& law, std::int64_t i) {
  const std::int64_t length = warmup_length(law), fall = law.total_steps - length;
  if (i < 0) return 0.0;
  if (i < length) {
    return law.peak * (law.warmup.minimum_ratio + (1.0 - law.warmup.minimum_ratio) * warmup_share(law, i));
  }
  const std::int64_t fallen = i - length + 1;
  const double share = fallen >= fall ? 0.0 : half_cosine(static_cast<double>(fallen) / static_cast<double>(fall));
  return law.peak * (law.warmup.cosine_ratio + (1.0 - law.warmup.cosine_ratio) * share);
}

double one_cycle(const Law& law, std::int64_t done) {
  const Cycle& cycle = law.cycle;
  const double rise = law.peak - cycle.minimum;
  if (done <= cycle.first_steps) {
    return cycle.minimum + rise * static_cast<double>(done) / static_cast<double>(cycle.first_steps);
  }
  const std::int64_t beyond = done - cycle.first_steps - cycle.second_steps;
  if (beyond <= 0) return cycle.minimum - rise * static_cast<double>(beyond) / static_cast<double>(cycle.second_steps);
  if (cycle.decay_steps == 0) return cycle.minimum;
  return cycle.minimum /
         (1.0 + cycle.decay_rate * static_cast<double>(beyond) / static_cast<double>(cycle.decay_steps));
}

double range_test(const RangeTest& test, std::int64_t done) {
  const double intervals = static_cast<double>(done) / static_cast<double>(test.step_size);
  return test.minimum * (1.0 + test.rate * (test.staircase ? std::floor(intervals) : intervals));
}

}  // namespace

double learning_rate(const Law& law, std::int64_t step) {
  using enum config::LearningRateLaw;
  switch (law.kind) {
    case constant:
    case linear:
    case cosine: return warmup_then_fall(law, step);
    case warmup:
    case warmup_decay: return warmup_and_decay(law, step - 2);
    case warmup_cosine: return warmup_and_cosine(law, step - 2);
    case one_cycle: return optim::one_cycle(law, step - 1);
    case lr_range_test: return range_test(law.range_test, step - 1);
  }
  return 0;
}

}  // namespace trireme::optim
