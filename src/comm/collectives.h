// Collectives over send and receive, with a fixed order of summation. All ranks call the same ones in the same order.
#pragma once
#include <cstdint>
#include <span>

#include "comm/communicator.h"
#include "layout/dtype.h"

namespace trireme::comm {

void barrier(Communicator& comm);
void broadcast(Communicator& comm, std::span<std::byte> bytes, int root);
// mine.size() bytes of each rank, in rank order, into all (world_size * mine.size()); mine may be its own place in all.
void all_gather(Communicator& comm, std::span<const std::byte> mine, std::span<std::byte> all);

// sum (slice_numel floats, this rank's slice of the whole): for r = 0 .. participants-1 in rank order adds slice rank()
// of rank r's slot, as fp32; the first addition overwrites if `first`. Ranks below participants pass their slot
// (world_size * slice_numel elements of slot_dtype), the others nullptr. Chunked, so that receiving and adding overlap
// and scratch stays small.
void ordered_reduce_scatter(Communicator& comm, const void* slot, DType slot_dtype, float* sum,
                            std::int64_t slice_numel, int participants, bool first);

// In place on the ranks' own whole accumulators (world_size * slice_numel): this rank's slice becomes the sum in rank
// order; the others keep what this rank had.
void ordered_scatter_sums(Communicator& comm, float* accumulator, std::int64_t slice_numel);

// In place on numel floats of each rank: sums in rank order. Same bits on every rank.
void ordered_all_reduce(Communicator& comm, float* values, std::int64_t numel);

}  // namespace trireme::comm
