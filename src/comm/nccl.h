// Ranks that each have a CUDA device, and what lies there sent from one to the other: NCCL.
//
// libnccl.so.2 is loaded when the first communicator is made; a machine without it runs one rank on a device. What is
// issued is asynchronous, in the order of the stream that it is issued to, and by one thread at a time. All ranks issue
// the same on all their communicators in the same order.
#pragma once
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "comm/communicator.h"

namespace trireme::comm {

class Nccl {
 public:
  // Of the ranks of `ranks`, which all make theirs at the same time, each on its thread's device. Error TR3062 without
  // the library.
  explicit Nccl(Communicator& ranks);
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;
  // What was issued has completed, or abort() was called.
  ~Nccl();

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }

  // About what NCCL takes of each device for communicators of so many ranks of one machine, none for those of one: its
  // code and tables once, and for each the buffers of a ring's channels and of those to each peer. Measured with NCCL
  // 2.28.9 between two H200 on NVLink.
  static std::int64_t planned_bytes(std::initializer_list<int> world_sizes);

  // Bytes that go to a rank or come from it; none: nothing happens. What goes between two ranks matches in order.
  struct Piece {
    std::byte* data;
    std::int64_t bytes;
    int peer;
    std::byte* there = nullptr;  // of what is sent: what the receiver's place is called here; NCCL does without
  };
  // All at once: `sends` are only read. stream: a cudaStream_t.
  void exchange(std::span<const Piece> sends, std::span<const Piece> receives, void* stream);
  // `bytes` of each rank, in rank order, into all; mine may be its own place in all.
  void all_gather(const std::byte* mine, std::byte* all, std::int64_t bytes, void* stream);

  // Throws TR1101 where NCCL has noticed that a peer is gone, TR1104 for what else went wrong since.
  void throw_if_failed() const;
  // Frees the streams: what they have still to do here ends anyhow, with no word of it. All calls throw TR1102 from now
  // on. Takes half a second, the streams are free in milliseconds.
  void abort() noexcept;

 private:
  void* handle() const;  // throws TR1102 after abort()

  int rank_, world_size_;
  void* handle_ = nullptr;
};

}  // namespace trireme::comm
