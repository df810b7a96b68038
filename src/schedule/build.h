// Writes the schedule of one rank for one step: strategy and accumulation as rules, no places and no waits yet.
#pragma once
#include "schedule/schedule.h"

namespace trireme::schedule {

// ddp and a single rank. With reduce_each_micro_batch: REDUCE(reduce_scatter) of each group after its last contribution
// in each round, in the last round followed by its REDUCE(all_gather); otherwise accumulate in each round, and in the
// last round a group's accumulate is followed by its REDUCE(all_reduce). On one rank there are no collectives:
// accumulate only (count and report remain, as local instructions with participants 1). A group read by several units
// is reduced once, after its last contribution. The order: count; per round forward 0 .. n-2, loss, backward n-2 .. 0,
// each followed by what became ready; report; norm; step of every trainable group. A rank without a micro-batch in the
// last round issues that round's collectives only. Throws Error TR2210 when world_size > num_micro_batches, TR1000 when
// the chain contradicts itself.
Program build_schedule(const ChainSpec& chain, const Options& options, int rank);

}  // namespace trireme::schedule
