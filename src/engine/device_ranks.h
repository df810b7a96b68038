// A set of ranks that each have a device: comm/collectives.h once more, on memory there and in the calling thread's
// stream.
//
// Sums are in rank order too, so they have the bits of the host's: what the ranks send each other are slots as they
// are, and each rank adds up its own part of all of them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/collectives.h"
#include "comm/nccl.h"
#include "engine/memory.h"
#include "engine/peer_copies.h"

namespace trireme::engine {

class DeviceRanks {
 public:
  // A collective of `ranks`, which talk through NCCL. scratch: for what arrives; of the sets of ranks that one stream
  // serves, the same. It outlives this.
  DeviceRanks(comm::Communicator& ranks, const Memory& scratch);
  // The same of ranks that are in reach (peer_copies.h) and talk by copies. targets: what is gathered or summed into,
  // of the same sizes in the same order on every rank, and whatever is asked for is at the same place on all of them.
  DeviceRanks(comm::Communicator& ranks, const Memory& scratch, std::vector<const Memory*> targets);

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  void all_gather(const std::byte* mine, std::byte* all, std::int64_t bytes);

  // What NCCL has noticed.
  void throw_if_failed() const;
  void abort() noexcept;

  // As those of comm/collectives.h, of slots that are sent as they are.
  friend void ordered_reduce_scatter(DeviceRanks& ranks, const void* slot, const comm::ReduceTypes& types, void* sum,
                                     std::int64_t slice_numel, int participants, bool first);
  friend void ordered_scatter_sums(DeviceRanks& ranks, void* accumulator, DType dtype, std::int64_t slice_numel);
  friend void ordered_all_reduce(DeviceRanks& ranks, void* values, DType dtype, std::int64_t numel);

 private:
  struct Parts;
  void sum_parts(const std::byte* slot, const comm::ReduceTypes& types, std::byte* sum, const Parts& parts,
                 int participants, bool overwrite);
  using Piece = comm::Nccl::Piece;
  void exchange(std::span<const Piece> sends, std::span<const Piece> receives);
  std::vector<int> peers_in_turn() const;

  int rank_, world_size_;
  const Memory& scratch_;
  // One of the two.
  std::unique_ptr<comm::Nccl> nccl_;
  std::unique_ptr<PeerCopies> copies_;
};

// What it takes for slots that arrive.
std::int64_t device_scratch_bytes(const comm::ReduceTypes& types, std::int64_t slice_numel, int participants,
                                  int world_size);

}  // namespace trireme::engine
