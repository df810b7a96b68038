// What one rank does in one step, in order, and what each instruction touches.
//
// build.h writes a Schedule from a ChainSpec and Options; lower.h turns it into a Program: a place for every buffer and
// every wait written down; verify.h proves the programs of all ranks; engine/executor.h runs one. A buffer is a name
// with a size: nothing here knows tensors or torch, so a schedule for thousands of ranks fits in a test.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "schedule/chain_spec.h"

namespace trireme::schedule {

enum class Op : std::uint8_t {
  count,       // collective: valid label tokens of the global batch (the divisor of the loss)
  forward,     // FORWARD u m
  loss,        // LOSS u m: the head's forward and backward, chunk by chunk
  backward,    // BACKWARD u m: overwrites the gradient slots of its groups (adds where `adds` says so)
  accumulate,  // adds the slot of g into this rank's own accumulator; the first one overwrites it
  reduce,      // collective: see ReduceKind
  report,      // collective: losses of all micro-batches, stop and error flags
  norm,        // global gradient norm and clip factor
  step,        // STEP g: optimizer on a group, and the units' copy of the weights
};

// reduce_scatter: for r in 0 .. participants-1 in rank order, slice s of rank r's slot is added to rank s's accumulator
// slice
//   (the first addition of the step overwrites).
// all_gather: every rank's accumulator slice to every rank's whole accumulator.
// all_reduce: both, on the ranks' own accumulators (ddp that reduces once a step): slice s of rank r's accumulator is
// added in
//   rank order, then gathered; in place.
enum class ReduceKind : std::uint8_t { none, reduce_scatter, all_gather, all_reduce };

// Instructions of one lane run in issue order, one at a time; lanes overlap.
enum class Lane : std::uint8_t { compute, reduce };
inline constexpr int kNumLanes = 2;

enum class BufferKind : std::uint8_t {
  weights,            // what units read, per group; persistent
  state,              // master (if apart), moments, per group; persistent
  accumulator,        // fp32 gradient sum, per group; persistent
  scalars,            // counts, losses, norm; persistent, placed by the engine
  gradient_slot,      // compute-dtype gradient of one group and micro-batch
  activation,         // a unit's output boundary
  saved,              // a unit's saved tensors
  boundary_gradient,  // gradient of a unit's output boundary
  workspace,
};
constexpr bool is_persistent(BufferKind kind) {
  return kind <= BufferKind::scalars;
}

struct Buffer {
  BufferKind kind = BufferKind::workspace;
  int unit = -1, group = -1, micro_batch = -1;  // what it belongs to, -1 where none applies
  std::int64_t bytes = 0;
  std::int64_t offset = -1;  // set by lower(): place in the persistent space or in the arena, a multiple of 256 bytes
};

struct Instruction {
  Op op = Op::forward;
  Lane lane = Lane::compute;
  int unit = -1, group = -1;
  int micro_batch = -1;  // global index 0 .. M-1; -1 for once-a-step instructions and collectives
  int round = -1;        // accumulation round of forward .. reduce
  ReduceKind reduce = ReduceKind::none;
  int participants = 0;    // reduce: ranks 0 .. participants-1 contribute a slot
  bool first = false;      // accumulate, reduce: the accumulator (slice) is overwritten, not added to
  std::vector<bool> adds;  // loss, backward: per entry of UnitSpec::gradients, add into the slot instead of overwriting
  std::int64_t element_count = 0;  // collectives: elements of the whole group; equal on all ranks
  std::vector<int> reads;          // buffers; written before, not released
  std::vector<int> writes;         // buffers; a buffer in both lists is updated in place
  std::vector<int> waits;          // set by lower(): indices of instructions of other lanes that must have completed
};

// One rank's step, closed and drained: it starts with everything at rest and ends so.
struct Program {
  int rank = 0, world_size = 1;
  std::vector<Buffer> buffers;
  std::vector<Instruction> instructions;  // the issue order; each lane runs its own in this order
  std::int64_t arena_bytes = 0;           // set by lower()
  std::int64_t persistent_bytes = 0;      // set by lower()
};

bool is_collective(const Instruction& instruction);

// "backward layers.3 m1", for logs, errors and drawings.
std::string to_string(const Instruction& instruction, const ChainSpec& chain);
std::string to_string(const Buffer& buffer, const ChainSpec& chain);

}  // namespace trireme::schedule
