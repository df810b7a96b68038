// How long a planned step will take, in words and as a timeline.
#pragma once
#include <optional>
#include <string>

#include "engine/engine.h"
#include "schedule/simulate.h"

namespace trireme::train {

struct Prediction {
  std::string text;             // step time, exposed communication, idle lanes, peak memory, and what the rates are
  schedule::Timeline timeline;  // of step.program(pass)
};

// Of the rank that `step` was planned for, beside ranks of all classes. pass: that of most steps, unless given.
Prediction predict(const engine::StepPlan& step, const schedule::Rates& rates,
                   std::optional<schedule::Pass> pass = std::nullopt);

}  // namespace trireme::train
