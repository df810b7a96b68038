// What one instruction costs: bytes on the wire and seconds, from sizes and rates alone.
#pragma once
#include <cstdint>

#include "schedule/rates.h"
#include "schedule/schedule.h"

namespace trireme::schedule {

// Of eight bytes, that each rank gives to report: the losses of its rounds, a request to stop, a sum of squares in two
// parts, and the number of a tensor that is not finite.
int report_words(int rounds);

// Bytes that the busiest rank of a collective sends (and another receives), as comm/collectives.h does it: each rank
// sends its slices straight to their owners, P - 1 of P slices a phase; an all-reduce is a scatter and a gather. 0 for
// other instructions, where nobody takes part, and on one rank.
std::int64_t wire_bytes(const ChainSpec& chain, const Options& options, const Instruction& instruction);

// forward, recompute, loss, backward: the longer of operations / their rates (of products and of attention) and bytes /
//   bytes_moved_per_s (the roofline model; Williams, Waterman, Patterson, CACM 52(4), 2009)
// offload, fetch, snapshot: the bytes that they copy
// accumulate, norm, step: the bytes that they read and write, of this rank's slice where it has one
// collectives: a latency for each phase, and wire_bytes / collective_bytes_per_s
// release: nothing
double seconds(const ChainSpec& chain, const Options& options, const Program& program, const Instruction& instruction,
               const Rates& rates);

}  // namespace trireme::schedule
