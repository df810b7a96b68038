// Collectives over send and receive, with a fixed order of summation. All ranks call the same ones in the same order.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "comm/communicator.h"
#include "layout/dtype.h"

namespace trireme::comm {

void barrier(Communicator& comm);
void broadcast(Communicator& comm, std::span<std::byte> bytes, int root);
std::string broadcast_text(Communicator& comm, std::string text);  // rank 0's, on every rank
// mine.size() bytes of each rank, in rank order, into all (world_size * mine.size()); mine may be its own place in all.
void all_gather(Communicator& comm, std::span<const std::byte> mine, std::span<std::byte> all);

// A value of each rank, or as many values of each, in rank order.
template <class T>
std::vector<T> gathered(Communicator& comm, const std::vector<T>& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(mine.size() * static_cast<std::size_t>(comm.world_size()));
  all_gather(comm, std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
  return all;
}
template <class T>
std::vector<T> gathered(Communicator& comm, const T& mine) {
  return gathered(comm, std::vector<T>{mine});
}

// Element types of a reduction, float32, bfloat16 or float16: of the slots; of what is sent, to which also a rank's own
// slot is rounded before it is added; and of the sums, which are added in fp32 and rounded each time.
struct ReduceTypes {
  DType slot = DType::f32, wire = DType::f32, sum = DType::f32;
};

// sum (slice_numel elements, this rank's slice of the whole): for r = 0 .. participants-1 in rank order adds slice
// rank() of rank r's slot; the first addition overwrites if `first`. Ranks below participants pass their slot
// (world_size * slice_numel elements), the others nullptr. Chunked, so that receiving and adding overlap and scratch
// stays small.
void ordered_reduce_scatter(Communicator& comm, const void* slot, const ReduceTypes& types, void* sum,
                            std::int64_t slice_numel, int participants, bool first);

// What it takes for chunks that arrive, at most.
std::int64_t ordered_scratch_bytes(const ReduceTypes& types, std::int64_t slice_numel, int participants,
                                   int world_size);

// In place on the ranks' own whole accumulators (world_size * slice_numel): this rank's slice becomes the sum in rank
// order; the others keep what this rank had.
void ordered_scatter_sums(Communicator& comm, void* accumulator, DType dtype, std::int64_t slice_numel);

// In place on numel values of each rank: sums in rank order. Same bits on every rank.
void ordered_all_reduce(Communicator& comm, void* values, DType dtype, std::int64_t numel);

}  // namespace trireme::comm
