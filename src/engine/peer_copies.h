// Collectives of ranks of one machine whose devices write each other's memory: a rank copies what it sends to where it
// belongs, and a flag in the receiver's memory says that it is there. The copies are those of the devices' copy
// engines, so nothing is taken of what computes beside them, as NCCL's kernels do.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/nccl.h"
#include "engine/memory.h"
#include "kernels/device.h"

namespace trireme::engine {

// How many neighbouring ranks' devices reach each other's memory: all, those of a machine (`per_machine`, the same
// number on each), or 1. A collective, on the calling thread's device, with the same answer on every rank.
int ranks_in_reach(comm::Communicator& ranks, int per_machine);

class PeerCopies {
 public:
  using Piece = comm::Nccl::Piece;

  // A collective of ranks in reach, on the thread's device. targets: all that is written into, of the same sizes in the
  // same order on every rank; they outlive this. Error TR3066 where a rank's memory is out of reach after all.
  PeerCopies(comm::Communicator& ranks, std::vector<const Memory*> targets);
  PeerCopies(const PeerCopies&) = delete;
  PeerCopies& operator=(const PeerCopies&) = delete;
  // What was issued has completed, or abort() was called.
  ~PeerCopies();

  // As comm::Nccl::exchange(), in the calling thread's stream. Piece::there of what is sent is the receiver's place,
  // told as the same place in this rank's targets: all ranks have the same at the same place.
  void exchange(std::span<const Piece> sends, std::span<const Piece> receives);

  // Ends the waiting of what was issued, which goes on with what is not there yet, and returns when it has ended;
  // exchange() throws TR1102 from now on.
  void abort() noexcept;

 private:
  struct Peer {
    std::vector<kernels::SharedMemory> names;  // of its targets, then of its flags
    std::vector<std::byte*> opened;            // in the same order
  };
  std::byte* at_peer(int peer, const std::byte* place) const;
  std::uint32_t* flag_at(int peer, int index) const;
  const std::uint32_t* flag(int index) const;

  int rank_, world_size_;
  std::vector<const Memory*> targets_;
  Memory flags_;  // of each rank: the last exchange that it is ready for, then the last that it has sent its part of
  std::vector<Peer> peers_;
  std::uint32_t sequence_ = 0;  // of exchanges
  bool is_aborted_ = false;
  kernels::Event last_;
  struct Household;
  std::shared_ptr<Household> household_;  // with ranks that are threads of this process
};

}  // namespace trireme::engine
