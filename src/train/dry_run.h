// What a run would be, without running it: checks everything that needs no second process, and says it in words.
#pragma once
#include <string>

#include "config/plan.h"
#include "engine/engine.h"
#include "train/batch.h"

namespace trireme::train {

struct RunDescription {
  std::string
      text;  // the resolved plan with the origin of each value, parameter count, tokens per step, memory by owner
  engine::StepPlan step;  // of the rank that was asked for
};

// Opens the data's manifest, resolves the plan for so many ranks, builds, lowers and verifies the schedule of every
// rank. Throws what a start would throw.
RunDescription describe_run(const config::Plan& plan, Ranks ranks, int rank = 0);

}  // namespace trireme::train
