// Which ranks have the same program.
#pragma once
#include <vector>

#include "schedule/chain_spec.h"

namespace trireme::schedule {

// How many ranks of a replica, its first ones, have a micro-batch in the round.
int working_ranks(const Options& options, int replica, int round);

// One rank of each class, the first being 0. Programs of a class are the same but for the numbers of their
// micro-batches: ranks differ only in whether they, and how many ranks of their replica, work in the last round. There
// are four classes at most, so thousands of ranks are proven by a few programs.
std::vector<int> representative_ranks(const Options& options);

}  // namespace trireme::schedule
