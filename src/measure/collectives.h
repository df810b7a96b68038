// The collectives of training by themselves: `trireme bench` puts their speed into a rates.json, `trireme bench comm`
// prints it by size. All ranks measure together.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "engine/memory.h"
#include "layout/dtype.h"
#include "measure/timing.h"

namespace trireme::measure {

enum class Collective : std::uint8_t { all_gather, reduce_scatter, all_reduce };
std::string_view to_string(Collective collective);

// What links carry in one direction, for what is exchanged to be comparable between collectives and numbers of ranks:
// bytes / seconds x (ranks - 1) / ranks, and twice that of an all-reduce (NVIDIA's nccl-tests, doc/PERFORMANCE.md, "Bus
// bandwidth"). bytes: of the whole that a rank has after an all-gather, and before a reduce-scatter.
double bus_bytes_per_s(Collective collective, double bytes, double seconds, int ranks);

// Runs collectives of up to most_bytes as engines do: on the host through the communicator; or on the calling thread's
// device, in its stream, which outlives this: by copies where the ranks are in reach (engine/peer_copies.h) and
// `copies` allows it, else through NCCL. Slots that are reduced have the type, sums and what is
// all-reduced are fp32.
class Exchange {
 public:
  Exchange(comm::Communicator& ranks, DType dtype, std::int64_t most_bytes, const kernels::Stream* stream = nullptr,
           bool copies = true);
  ~Exchange();

  // Of what is sent.
  DType dtype_for(Collective collective) const { return collective == Collective::all_reduce ? DType::f32 : dtype_; }
  // The multiple of what one element a rank takes that is nearest below, one at least.
  std::int64_t whole_bytes(Collective collective, std::int64_t bytes) const;
  // For about so many seconds on each rank.
  Timing time(Collective collective, std::int64_t bytes, double seconds);
  std::string_view way() const;  // "host", "copies" or "NCCL"
  // What the last reduction made, fp32.
  const engine::Memory& sums() const { return sums_; }

 private:
  struct Devices;
  void run(Collective collective, std::int64_t bytes);
  void reset(std::int64_t bytes);

  comm::Communicator& ranks_;
  DType dtype_;
  const kernels::Stream* stream_;
  engine::Memory whole_, sums_, values_;  // of dtype; fp32; what sums begin with
  std::unique_ptr<Devices> devices_;
};

struct CommOptions {
  int device = -1;  // of this rank; below 0: the CPU
  int threads = 1;  // that compute beside, on the CPU
  DType dtype = DType::bf16;
  std::vector<std::int64_t> bytes;  // in the order of the rows
  double seconds = 0.5;             // for each
  bool copies = true;               // as Exchange
};

struct CommRow {
  std::string_view way;  // Exchange::way()
  Collective collective;
  DType dtype;  // of what is sent
  std::int64_t bytes;
  bool loaded;  // beside matrix products
  Timing seconds;
  double bus_bytes_per_s;
};

// Two ranks at least.
std::vector<CommRow> measure_comm(const CommOptions& options, comm::Communicator& ranks);

std::string to_table(const std::vector<CommRow>& rows);

}  // namespace trireme::measure
