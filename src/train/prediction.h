// How long a planned step will take, in words and as a timeline.
#pragma once
#include <string>

#include "engine/engine.h"
#include "schedule/simulate.h"

namespace trireme::train {

struct Prediction {
  std::string text;             // step time, exposed communication, idle lanes, peak memory, and what the rates are
  schedule::Timeline timeline;  // of the program
};

// Of the rank that `step` was planned for, beside ranks of all classes: of most steps, or of one of step.programs.
Prediction predict(const engine::StepPlan& step, const schedule::Rates& rates);
Prediction predict(const engine::StepPlan& step, const schedule::Rates& rates, const schedule::Program& program);

}  // namespace trireme::train
