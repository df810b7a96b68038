// How many samples a step has, and how they are cut: global = micro x accumulation x data ranks, in one place for every
// way to say it. Pure.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/plan.h"

namespace trireme::train {

// How many ranks share the data, who says so, for messages: "--nproc-per-node", how many are on one machine, and which
// of these this one is.
struct Ranks {
  Ranks(int number, std::string origin = {}, int on_machine = 0, int local = 0)
      : count(number),
        source(std::move(origin)),
        per_machine(on_machine == 0 ? number : on_machine),
        local_rank(local) {}
  int count;
  std::string source;
  int per_machine, local_rank;
  int in_reach = 1;  // engine::ranks_in_reach(), where that has been asked
};

// What a checkpoint says: its global batch wins over the plan's accumulation, its optimizer must be the plan's.
struct ResumeFacts {
  std::int64_t num_micro_batches = 0, micro_batch_size = 0;
  std::string optimizer = "adamw";  // optim::Optimizer::name
};

struct BatchSizes {
  std::int64_t micro_batch_size = 1, num_micro_batches = 1;  // of all ranks
  std::int64_t global_size() const { return micro_batch_size * num_micro_batches; }
};

// Any two of the three sizes give the third; global alone is cut into micro-batches of 1, so that neither bits nor
// memory depend on the ranks; without global it is the product. Without accumulation the last round may be uneven;
// where it is given the equation must hold: Error TR2212 otherwise, with all factors and the nearest values that fit.
// TR2210: fewer micro-batches than ranks. TR2221, TR2222: not the checkpoint's batch.
BatchSizes batch_of(const config::Plan& plan, const Ranks& ranks, const std::optional<ResumeFacts>& resume,
                    std::vector<std::string>& notices);

}  // namespace trireme::train
