// Proves the lowered programs of all ranks, under every interleaving that their waits allow, before anything is
// launched.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "schedule/schedule.h"

namespace trireme::schedule {

struct Finding {
  int rank = 0;
  int instruction = -1;  // where it shows; -1 for the program as a whole
  std::string what;      // one sentence
};

// Empty when the programs hold: each buffer is written before it is read and not overwritten in between (by any buffer
// that shares its bytes), conflicting accesses are ordered, gathered weights are released once, sizes are those of the
// chain, collectives come in one order with equal kind, group, scope and count on all ranks, the system runs to its
// end, and the arena stays under budget_bytes (0: no limit). programs[r] is rank r's.
std::vector<Finding> verify(const ChainSpec& chain, const Options& options, std::span<const Program> programs,
                            std::int64_t budget_bytes = 0);

// The same of some ranks, whose programs these are, in that order; rank 0 comes first. All ranks hold when
// representative_ranks(options) are among them.
std::vector<Finding> verify_some(const ChainSpec& chain, const Options& options, std::span<const int> ranks,
                                 std::span<const Program> programs, std::int64_t budget_bytes = 0);

}  // namespace trireme::schedule
