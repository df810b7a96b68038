// Learning-rate laws: pure functions of the step.
#pragma once
#include <cstdint>

#include "config/plan.h"

namespace trireme::optim {

struct Law {
  config::LearningRateLaw kind = config::LearningRateLaw::constant;
  double peak = 0, minimum = 0;
  std::int64_t warmup_steps = 0, total_steps = 0;
};

// The rate of step s = 1, 2, ...: linear warm-up peak * s / warmup_steps for s <= warmup_steps, then constant, or from
// peak down to minimum at total_steps: linear, or half a cosine. Beyond total_steps: minimum.
double learning_rate(const Law& law, std::int64_t step);

}  // namespace trireme::optim
