// Learning-rate laws: pure functions of the step.
#pragma once
#include <cstdint>

#include "config/plan.h"

namespace trireme::optim {

// A warm-up as DeepSpeed has it: N = max(warmup_steps, 2), and the share of the way is i / N or ln(i + 1) / ln N.
struct Warmup {
  config::WarmupType type = config::WarmupType::logarithmic;
  double minimum = 0;          // warmup, warmup_decay: where it starts
  double minimum_ratio = 0;    // warmup_cosine: the same, as a share of the peak
  double cosine_ratio = 1e-4;  // warmup_cosine: where it ends
};

struct Cycle {
  double minimum = 0;
  std::int64_t first_steps = 2000, second_steps = 2000;
  std::int64_t decay_steps = 0;  // 0: no decay
  double decay_rate = 0;
};

struct RangeTest {
  double minimum = 1e-3;
  std::int64_t step_size = 2000;
  double rate = 1;
  bool staircase = false;
};

struct Law {
  config::LearningRateLaw kind = config::LearningRateLaw::constant;
  double peak = 0, minimum = 0;
  std::int64_t warmup_steps = 0, total_steps = 0;
  Warmup warmup = {};
  Cycle cycle = {};
  RangeTest range_test = {};
};

// The rate of step s = 1, 2, ...
//
// constant, linear, cosine: linear warm-up peak * s / warmup_steps for s <= warmup_steps, then constant, or from peak
// down to minimum at total_steps: linear, or half a cosine. Beyond total_steps: minimum.
//
// The others are DeepSpeed's (deepspeed/runtime/lr_schedules.py), which sets the rate of step s + 1 after step s. So
// the first step has the rate of the start, and for the warm-ups the second too: i = s - 2 counts.
//   warmup          warmup.minimum to peak in N steps, then peak
//   warmup_decay    the same, then linear to warmup.minimum at i = total_steps
//   warmup_cosine   peak times a share: 0 in step 1, then from minimum_ratio to 1 in N steps, then half a cosine to
//                   cosine_ratio at i = total_steps - 1, where it stays (DeepSpeed's would rise again)
//   one_cycle       cycle.minimum to peak in first_steps, back in second_steps, then cycle.minimum divided by
//                   1 + decay_rate * (steps since) / decay_steps
//   lr_range_test   range_test.minimum * (1 + rate * (s - 1) / step_size), of which staircase takes whole step_sizes
double learning_rate(const Law& law, std::int64_t step);

}  // namespace trireme::optim
