// training.memory_budget, or on a device what is free there: a plan that needs more is refused before anything starts,
// with the cheapest change that fits.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "config/plan.h"
#include "train/batch.h"

namespace trireme::train {

std::string mebibytes(std::int64_t bytes);  // "12.3 MiB"

using PlannedBytes = std::function<std::int64_t(const config::Plan& plan)>;

// bytes: what rank 0 of the plan, which has work in every round, takes for its steps (StepPlan::bytes()). Saving where
// ranks hold slices takes one whole group in fp32 besides (the dry run says so). Throws Error TR2280 where that is
// above the budget: names both, and of what may be sharded among the ranks or computed again the change that adds least
// to a step and fits, or that none does.
void check_memory_budget(const config::Plan& plan, const Ranks& ranks, std::int64_t bytes, const PlannedBytes& of_plan);

}  // namespace trireme::train
