// Writes the schedule of one rank for one step: strategy and accumulation as rules, no places and no waits yet.
#pragma once
#include "schedule/schedule.h"

namespace trireme::schedule {

// ddp and a single rank. With reduce_each_micro_batch: REDUCE(reduce_scatter) of each group after its last contribution
// in each round, REDUCE(all_gather) after the last round; otherwise accumulate in each round but the last contribution
// of the last round is followed by REDUCE(all_reduce). On one rank there are no collectives: accumulate only (count and
// report remain, as local instructions with participants 1). A group read by several units is reduced once, after its
// last contribution. The order: count; per round forward 0 .. n-2, loss, backward n-2 .. 0, each followed by what
// became ready; report; norm; step of every trainable group. Throws Error TR2210 when world_size > num_micro_batches.
Program build_schedule(const ChainSpec& chain, const Options& options, int rank);

}  // namespace trireme::schedule
