#include "optim/law.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace trireme::optim {

double learning_rate(const Law& law, std::int64_t step) {
  if (step <= law.warmup_steps) return law.peak * static_cast<double>(step) / static_cast<double>(law.warmup_steps);
  if (law.kind == config::LearningRateLaw::constant) return law.peak;
  const std::int64_t decay_steps = law.total_steps - law.warmup_steps;
  if (step >= law.total_steps || decay_steps <= 0) return law.minimum;
  const double progress = static_cast<double>(step - law.warmup_steps) / static_cast<double>(decay_steps);
  const double share = law.kind == config::LearningRateLaw::linear
                           ? 1.0 - progress
                           : 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  return law.minimum + (law.peak - law.minimum) * share;
}

}  // namespace trireme::optim
