#include "train/memory_budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "base/error.h"
#include "train/device.h"

namespace trireme::train {

namespace {

using config::Recompute;
using config::Strategy;

// What may be changed without changing the bits of a run that reduces at each micro-batch, from less to more sharding,
// and what it adds to a step, coarsely: a gather after it (1), gathers beside forward and backward (3).
struct StrategyLevel {
  Strategy strategy;
  const char* name;
  int cost;
};
constexpr StrategyLevel kStrategies[] = {
    {Strategy::zero1, "zero1", 1}, {Strategy::zero2, "zero2", 1}, {Strategy::full_shard, "full_shard", 3}};

// How many of these the plan's own strategy shards as much as.
int level_of(Strategy strategy) {
  switch (strategy) {
    case Strategy::ddp:
    case Strategy::no_shard: return 0;
    case Strategy::zero1: return 1;
    case Strategy::zero2:
    case Strategy::shard_grad_op: return 2;
    case Strategy::zero3:
    case Strategy::full_shard:
    case Strategy::hybrid_shard: return 3;
  }
  return 3;
}

struct Candidate {
  config::Plan plan;
  std::vector<std::string> changes;
  int cost = 0;
};

std::vector<Candidate> with_more_sharding(const config::Plan& plan, int world_size) {
  std::vector<Candidate> candidates{{.plan = plan, .changes = {}, .cost = 0}};
  // Where the plan says replicas, its strategy stays.
  if (world_size == 1 || plan.distributed.dp_replicate || plan.distributed.dp_shard) return candidates;
  for (int level = level_of(plan.distributed.strategy); level < static_cast<int>(std::size(kStrategies)); ++level) {
    const StrategyLevel& more = kStrategies[level];
    Candidate& candidate = candidates.emplace_back(
        Candidate{.plan = plan, .changes = {std::string("distributed.strategy=") + more.name}, .cost = more.cost});
    candidate.plan.distributed.strategy = more.strategy;
  }
  return candidates;
}

// A share of the forward again (2), or all of it (4).
std::vector<Candidate> with_more_recomputing(const Candidate& candidate) {
  std::vector<Candidate> candidates{candidate};
  const config::TrainingPlan& training = candidate.plan.training;
  const auto add = [&](Recompute mode, std::vector<std::string> changes, int cost) {
    Candidate& more = candidates.emplace_back(candidate);
    more.plan.training.gradient_checkpointing = mode;
    more.plan.training.recompute_every = 1;
    more.changes.insert(more.changes.end(), changes.begin(), changes.end());
    more.cost += cost;
  };
  const bool some_only = training.recompute_every > 1;
  std::vector<std::string> full;
  if (training.gradient_checkpointing == Recompute::none) {
    add(Recompute::selective, {"training.gradient_checkpointing=selective"}, 2);
  }
  if (training.gradient_checkpointing != Recompute::full) full.emplace_back("training.gradient_checkpointing=full");
  if (some_only) full.emplace_back("training.recompute_every=1");
  if (!full.empty()) add(Recompute::full, full, 4);
  return candidates;
}

// The inputs of blocks (1) beside the backward; the sums and the weights once a step, and an update by the host's
// processor (6); the weights each time that they are gathered (3 more). Only the device's memory is bounded.
std::vector<Candidate> with_more_on_the_host(const Candidate& candidate) {
  using config::Offload;
  std::vector<Candidate> candidates{candidate};
  const auto add = [&](const Candidate& from, const char* change, int cost) -> config::Plan& {
    Candidate more = from;
    more.changes.emplace_back(change);
    more.cost += cost;
    return candidates.emplace_back(std::move(more)).plan;
  };
  const config::TrainingPlan& training = candidate.plan.training;
  if (training.gradient_checkpointing == Recompute::full && !training.cpu_checkpointing) {
    add(candidate, "training.cpu_checkpointing=true", 1).training.cpu_checkpointing = true;
  }
  for (std::size_t i = 0, count = candidates.size(); i < count; ++i) {
    if (candidates[i].plan.distributed.offload_optimizer == Offload::cpu) continue;
    add(candidates[i], "distributed.offload_optimizer=cpu", 6).distributed.offload_optimizer = Offload::cpu;
  }
  for (std::size_t i = 0, count = candidates.size(); i < count; ++i) {
    const config::DistributedPlan& d = candidates[i].plan.distributed;
    const bool can = d.offload_optimizer == Offload::cpu && d.offload_param == Offload::none;
    if (!can || level_of(d.strategy) < 3) continue;
    add(candidates[i], "distributed.offload_param=cpu", 3).distributed.offload_param = Offload::cpu;
  }
  return candidates;
}

// From the cheapest on.
std::vector<Candidate> candidates_of(const config::Plan& plan, int world_size) {
  std::vector<Candidate> candidates;
  for (const Candidate& sharded : with_more_sharding(plan, world_size)) {
    for (const Candidate& recomputing : with_more_recomputing(sharded)) {
      for (const Candidate& candidate : with_more_on_the_host(recomputing)) {
        if (!candidate.changes.empty()) candidates.push_back(candidate);
      }
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.cost < b.cost; });
  return candidates;
}

}  // namespace

std::string mebibytes(std::int64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

void check_memory_budget(const config::Plan& plan, const Ranks& ranks, std::int64_t bytes,
                         const PlannedBytes& of_plan) {
  const std::int64_t free = free_device_memory(plan, ranks), budget = plan.training.memory_budget.value_or(free);
  if (budget == 0 || bytes <= budget) return;
  std::int64_t least = bytes;
  std::string remedy;
  for (const Candidate& candidate : candidates_of(plan, ranks.count)) {
    const std::int64_t needed = of_plan(candidate.plan);
    least = std::min(least, needed);
    if (needed > budget) continue;
    remedy = fmt::format("{} needs {}", fmt::join(candidate.changes, " "), mebibytes(needed));
    break;
  }
  if (remedy.empty()) {
    remedy = fmt::format(
        "no sharding, recomputing or offloading fits; the least is {}. Use more ranks, a smaller micro_batch_size "
        "or sequence_length, or raise the budget",
        mebibytes(least));
  }
  const auto origin = plan.origins.find("training.memory_budget");
  const char* limit = plan.training.memory_budget ? "training.memory_budget is" : "the device's free memory is";
  throw Error(2280, origin == plan.origins.end() ? "training.memory_budget" : origin->second.place,
              fmt::format("{} {}, but a rank of {} needs {}", limit, mebibytes(budget), ranks.count, mebibytes(bytes)),
              remedy);
}

}  // namespace trireme::train
