// What a run would be, without running it: checks everything that needs no second process, and says it in words.
#pragma once
#include <string>

#include "config/plan.h"

namespace trireme::train {

// Opens the data's manifest, resolves the plan for world_size ranks, builds, lowers and verifies the schedule of every
// rank. Returns the resolved plan with the origin of each value, parameter count, tokens per step and memory by owner.
// Throws what a start would throw.
std::string describe_run(const config::Plan& plan, int world_size);

}  // namespace trireme::train
