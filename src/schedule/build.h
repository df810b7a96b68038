// Writes the schedule of one rank for one step: strategy and accumulation as rules, no places and no waits yet.
#pragma once
#include "schedule/schedule.h"

namespace trireme::schedule {

// count; per round forward 0 .. n-2, loss, (recompute and) backward n-2 .. 0, each followed by what became ready; norm;
// report; step of every trainable group. The backward ends at the first unit that gives a gradient: those before it
// keep nothing.
//
// How a group is reduced, after its last contribution in a round (GroupSpec says what is sharded):
//   sharded gradients           reduce_scatter in each round
//   sharded optimizer           accumulate in each round, scatter_sums in the last (zero1); with
//   reduce_each_micro_batch
//                               reduce_scatter in each
//   nothing                     accumulate in each round, all_reduce in the last (ddp); with reduce_each_micro_batch
//                               reduce_scatter in each, all_gather in the last
//   replicas                    sum_replicas in the last round besides
// Where units add in place there is nothing to accumulate: the reduction follows the last contribution itself.
// Sharded parameters are gathered for the units gather_ahead of the one at work and released after it, unless they are
// needed again soon (gather_once, reuse_distance), all within max_live. Whole ones that are updated in slices are
// gathered after their STEP.
//
// What is on the host: a group's sum is offloaded right after its reduction; STEP comes at the end, or where it does
// not wait (Options::steps_wait) right after that; then its weights are fetched, unless they stay on the host. Slices
// that do are fetched one unit ahead of their gather, whole ones in place of a gather. An input (input_on_host) is
// offloaded beside its unit's forward and fetched before the backward of the unit after it.
//
// SNAPSHOT g, in a pass that takes one, comes behind STEP g and the fetch and gather after it; where units work on the
// weights of that STEP, behind the first that does. Frozen groups have none: they do not change.
//
// On one rank there are no collectives: accumulate only (count and report remain, as local instructions with
// participants 1). A rank without a micro-batch in the last round issues that round's collectives and releases only.
// Throws Error TR2210 when world_size > num_micro_batches, TR1000 when the chain contradicts itself.
Program build_schedule(const ChainSpec& chain, const Options& options, int rank);

}  // namespace trireme::schedule
