#include "train/memory_budget.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace trireme::train {

namespace {

using config::Recompute;
using config::Strategy;

// What may be changed without changing the bits of a run that reduces at each micro-batch, and what it adds to a step,
// coarsely: a gather after it (1), a share of the forward again (2), gathers beside forward and backward (3), the whole
// forward again (4).
struct Level {
  const char* key;
  const char* value;
  int cost;
};
struct StrategyLevel : Level {
  Strategy strategy;
};
struct RecomputeLevel : Level {
  Recompute recompute;
};
constexpr StrategyLevel kStrategies[] = {{{"distributed.strategy", "ddp", 0}, Strategy::ddp},
                                         {{"distributed.strategy", "zero1", 1}, Strategy::zero1},
                                         {{"distributed.strategy", "zero2", 1}, Strategy::zero2},
                                         {{"distributed.strategy", "full_shard", 3}, Strategy::full_shard}};
constexpr RecomputeLevel kRecomputes[] = {{{"training.gradient_checkpointing", "none", 0}, Recompute::none},
                                          {{"training.gradient_checkpointing", "selective", 2}, Recompute::selective},
                                          {{"training.gradient_checkpointing", "full", 4}, Recompute::full}};

struct Candidate {
  config::Plan plan;
  std::string words;
  int cost = 0;
};

// From the cheapest on. Only steps up from what the plan says; where it says replicas, its strategy stays.
std::vector<Candidate> candidates_of(const config::Plan& plan, int world_size) {
  const bool fixed = world_size == 1 || plan.distributed.dp_replicate || plan.distributed.dp_shard;
  std::vector<Candidate> candidates;
  for (const StrategyLevel& strategy : kStrategies) {
    const bool same_strategy = strategy.strategy == plan.distributed.strategy;
    if (!same_strategy && (fixed || strategy.strategy < plan.distributed.strategy)) continue;
    for (const RecomputeLevel& recompute : kRecomputes) {
      if (recompute.recompute < plan.training.gradient_checkpointing) continue;
      const bool same_recompute = recompute.recompute == plan.training.gradient_checkpointing;
      if (same_strategy && same_recompute) continue;
      Candidate& candidate = candidates.emplace_back(Candidate{.plan = plan, .words = {}, .cost = 0});
      const auto change = [&](const Level& level) {
        candidate.words += fmt::format("{}{}={}", candidate.words.empty() ? "" : " ", level.key, level.value);
        candidate.cost += level.cost;
      };
      if (!same_strategy) change(strategy);
      if (!same_recompute) change(recompute);
      candidate.plan.distributed.strategy = strategy.strategy;
      candidate.plan.training.gradient_checkpointing = recompute.recompute;
      candidate.plan.training.recompute_every = 1;
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.cost < b.cost; });
  return candidates;
}

std::string mebibytes(std::int64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

std::int64_t planned_bytes(const engine::StepPlan& step) {
  return step.program.persistent_bytes + step.program.arena_bytes;
}

void check_memory_budget(const config::Plan& plan, int world_size, std::int64_t bytes, const PlannedBytes& of_plan) {
  const std::int64_t budget = plan.training.memory_budget.value_or(0);
  if (budget == 0 || bytes <= budget) return;
  std::int64_t least = bytes;
  std::string remedy;
  for (const Candidate& candidate : candidates_of(plan, world_size)) {
    const std::int64_t needed = of_plan(candidate.plan);
    least = std::min(least, needed);
    if (needed > budget) continue;
    remedy = fmt::format("{} needs {}", candidate.words, mebibytes(needed));
    break;
  }
  if (remedy.empty()) {
    remedy = fmt::format(
        "no sharding or recomputing fits; the least is {}. Use more ranks, a smaller micro_batch_size "
        "or sequence_length, or raise the budget",
        mebibytes(least));
  }
  const auto origin = plan.origins.find("training.memory_budget");
  throw Error(2280, origin == plan.origins.end() ? "training.memory_budget" : origin->second.place,
              fmt::format("training.memory_budget is {}, but a rank of {} needs {}", mebibytes(budget), world_size,
                          mebibytes(bytes)),
              remedy);
}

}  // namespace trireme::train
