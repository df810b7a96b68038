// What one rank does in one step, in order, and what each instruction touches.
//
// compute lane: forward, loss, recompute, backward, release, accumulate, norm, step. reduce lane: the collectives
// (count, gather, reduce, report). copy lane: offload, fetch and snapshot, and step where the state is in host memory.
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
  count,    // collective: valid label tokens of the global batch (the divisor of the loss)
  gather,   // collective: every slice of g to every rank; of weights for the units, or after STEP where they are whole
  release,  // RELEASE g: its gathered weights are void from here on
  forward,  // FORWARD u m
  loss,     // LOSS u m: the head's forward and backward, chunk by chunk
  recompute,   // RECOMPUTE u m: FORWARD again, for what its BACKWARD reads
  backward,    // BACKWARD u m: overwrites the gradient slots of its groups (adds where `adds` says so)
  accumulate,  // adds the slot of g into this rank's own accumulator; the first one overwrites it
  reduce,      // collective: see ReduceKind
  norm,        // sum of squares of the gradients that this rank holds
  report,      // collective: losses of all micro-batches, flags; the global norm and the clip factor
  step,        // STEP g: optimizer on a group or this rank's slice of it, and the units' copy of the weights
  offload,     // OFFLOAD: device to host, the input boundary of u m, or what this rank updates of the sum of g
  fetch,       // FETCH: host to device, that input again, or weights of g
  snapshot,    // SNAPSHOT g: what STEP made of this rank's slice of g, to where a later step leaves it alone
};

// reduce_scatter: for r in 0 .. participants-1 in rank order, slice s of rank r's slot is added to rank s's accumulator
//   slice (the first addition of the step overwrites).
// scatter_sums: slice s of rank r's accumulator is added in rank order into rank s's slice, in place.
// all_gather: every rank's accumulator slice to every rank's whole accumulator.
// all_reduce: scatter_sums, then all_gather.
// sum_replicas: the slices that ranks of all replicas hold are added in order of replicas; all get the sum.
enum class ReduceKind : std::uint8_t { none, reduce_scatter, scatter_sums, all_gather, all_reduce, sum_replicas };

// Who takes part in a collective: all ranks, the ranks of one replica, or those with the same slice in all replicas.
enum class Scope : std::uint8_t { none, world, shards, replicas };

// Instructions of one lane run in issue order, one at a time; lanes overlap.
enum class Lane : std::uint8_t { compute, reduce, copy };
inline constexpr int kNumLanes = 3;

// Where memory is. On CPU runs the host tier is memory of the same kind, apart from the device's and counted apart.
enum class Tier : std::uint8_t { device, host };

enum class BufferKind : std::uint8_t {
  weights,        // what units read, of a group with whole parameters; persistent
  weight_slice,   // this rank's slice of that, of a group with sharded ones; persistent
  state,          // master (if apart), moments, per trainable group or slice; persistent; none when it has no bytes
  accumulator,    // gradient sum, per trainable group or slice; persistent
  sum_copy,       // where the state is on the host, there too: what this rank updates of the accumulator; persistent
  snapshot,       // masters and moments of this rank's slice of a trainable group, also where it keeps all of them; on
                  // the host; persistent; as Options::snapshots says
  token_count,    // valid label tokens of the global batch; persistent; written by count, read by loss
  losses,         // (sum, weight); persistent; micro_batch m: one entry, written by LOSS m; micro_batch -1: the table
                  // of all M, written by report from every rank's entries
  gradient_norm,  // persistent; norm writes this rank's part, report the norm and the clip factor, which step reads
  gathered,       // what units read, of a group with sharded or fetched weights, from gather or fetch to release
  weight_copy,    // of what this rank updates, or keeps as its slice: on the host from step to fetch, on the device
                  // from fetch to gather
  gradient_slot,  // compute-dtype gradient of one group and micro-batch
  activation,     // a unit's output boundary
  saved,          // a unit's saved tensors
  boundary_gradient,  // gradient of a unit's output boundary
  recomputed_output,  // a unit's output once more, which nobody reads
  workspace,          // of one instruction
};
constexpr bool is_persistent(BufferKind kind) {
  return kind <= BufferKind::gradient_norm;
}

struct Buffer {
  BufferKind kind = BufferKind::workspace;
  int unit = -1, group = -1, micro_batch = -1;  // what it belongs to, -1 where none applies
  std::int64_t bytes = 0;
  std::int64_t offset = -1;  // set by lower(): place in its tier's persistent space or arena, a multiple of 256 bytes
  Tier tier = Tier::device;
};

// The buffers of an instruction, in this order; a buffer of no bytes does not exist and is left out, so look them up
// with find(), by list, kind and (where there may be several of a kind) group.
// Weights of a group: gathered where GroupSpec::is_gathered(), weights elsewhere.
// Kept weights: weights where parameters are whole, weight_slice where they are sharded; on the host where
// weights_on_host.
// clang-format off
//   forward     reads weights of UnitSpec::reads, activation (input: unit - 1's); writes activation (output: its own),
//               saved (unless recomputed, or nothing at or before it is trained: no backward follows), workspace
//   recompute   reads weights, activation (input); writes saved, recomputed_output, workspace
//   loss        reads weights, activation (input), token_count, the slots it adds to; writes boundary_gradient (of its
//               input: unit - 1's), slots of UnitSpec::gradients, workspace, losses of m. Of a group that adds in place
//               the accumulator stands for the slot, here and in backward
//   backward    reads weights, activation (input, if backward_reads_input), saved, boundary_gradient (of its output),
//               the slots it adds to; writes boundary_gradient (of its input), slots, workspace
//   accumulate  reads gradient_slot, accumulator (unless first); writes accumulator
//   reduce      reads gradient_slot (reduce_scatter, on participants), accumulator (unless first); writes accumulator
//   count       writes token_count
//   gather      sharded parameters: reads weight_slice, or the weight_copy of it where that is on the host, writes
//               gathered; whole ones: reads and writes weights
//   release     writes gathered: nothing that may be read
//   norm        reads the accumulators of all trainable groups, in order; writes gradient_norm
//   report      reads losses (this rank's micro-batches), gradient_norm; writes losses (the table), gradient_norm
//   step        reads accumulator, or sum_copy where the state is on the host, gradient_norm (unless it does not wait),
//               state, and the kept weights where it does not overwrite all of them (masters, or a slice of whole ones);
//               writes state, and the kept weights, or weight_copy where the state is on the host and they are not
//   offload     of u: reads activation (of u - 1), writes that on the host; of g: reads accumulator, writes sum_copy
//   fetch       of u: reads activation (of u - 1) on the host, writes it on the device; of g whose weights are on the
//               host, before it is used: reads the kept weights, writes weight_copy where they are a slice, else
//               gathered; of another g, after its step: reads weight_copy, and weights of which it fetches a slice;
//               writes the kept weights
//   snapshot    reads state, and the kept weights where they are the masters; writes snapshot
// clang-format on
// The first unit has no input, so there is no boundary before it; the head has no output.
struct Instruction {
  Op op = Op::forward;
  Lane lane = Lane::compute;
  int unit = -1, group = -1;
  int micro_batch = -1;  // global index 0 .. M-1; -1 for once-a-step instructions and collectives
  int round = -1;        // accumulation round of forward .. reduce
  ReduceKind reduce = ReduceKind::none;
  Scope scope = Scope::none;  // collectives
  int participants = 0;  // collectives: the first so many ranks of the scope contribute; fewer than all, or none, only
                         // in a reduce_scatter of a ragged last round (all take part in every collective)
  bool first = false;    // accumulate, reduce: the accumulator (slice) is overwritten, not added to
  std::vector<bool> adds;  // loss, backward: per entry of UnitSpec::gradients, the slot has gradients of other units,
                           // to which this one's are added (of a parameter that both read) or put; an accumulator also
                           // those of the rounds before, to which all are added
  std::int64_t element_count = 0;  // equal on all ranks; gather, reduce: of the whole group; count: 1; report: M
  std::vector<int> reads;          // buffers; written before, not released
  std::vector<int> writes;         // buffers; a buffer in both lists is updated in place
  std::vector<int> waits;          // set by lower(): earlier instructions, of other lanes, that must have completed
};

// One rank's pass, drained: it starts with everything at rest and ends so.
struct Program {
  Pass pass = Pass::closed;
  Snapshots snapshots = Snapshots::none;
  int rank = 0, world_size = 1;
  std::vector<Buffer> buffers;
  std::vector<Instruction> instructions;  // the issue order; each lane runs its own in this order
  std::int64_t arena_bytes = 0;           // set by lower(), as the three below
  std::int64_t persistent_bytes = 0;
  std::int64_t host_arena_bytes = 0, host_persistent_bytes = 0;
};

// A buffer has its place in one of these: per tier what is persistent, and the arena.
inline constexpr int kNumSpaces = 4;
constexpr int space_of(const Buffer& buffer) {
  return 2 * static_cast<int>(buffer.tier) + (is_persistent(buffer.kind) ? 1 : 0);
}
std::int64_t space_bytes(const Program& program, const Buffer& buffer);

// Whether any of its instructions is on that lane.
bool uses(const Program& program, Lane lane);

// count, gather, reduce and report: instructions that all ranks issue in one order. On one rank they are local.
bool is_collective(const Instruction& instruction);

// The buffer of that kind, and group unless -1, in `list` (an instruction's reads or writes); -1 where there is none.
int find(const Program& program, std::span<const int> list, BufferKind kind, int group = -1);

// "backward layers.3 m1", for logs, errors and drawings.
std::string to_string(const Instruction& instruction, const ChainSpec& chain);
std::string to_string(const Buffer& buffer, const ChainSpec& chain);

}  // namespace trireme::schedule
