// What a schedule must know of a model and of the way it is run: names and sizes, no tensors.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace trireme::schedule {

// What a rank keeps as its slice only: a row of the strategy table.
//   ddp nothing; zero1 the optimizer; zero2 gradients too; zero3 and full_shard parameters too; shard_grad_op the same,
//   gathered once a step; hybrid_shard full_shard among the ranks of each replica.
struct Sharding {
  bool parameters = false, gradients = false, optimizer = false;
  bool gather_once = false;
  bool operator==(const Sharding&) const = default;
};

struct GroupSpec {
  std::string name;
  std::int64_t numel = 0;  // padded; a multiple of shard_ranks() * 256
  bool trainable = true;
  // What a rank keeps as its slice only. Sharded parameters have sharded gradients, sharded gradients a sharded
  // optimizer (where trainable).
  bool shards_parameters = false, shards_gradients = false, shards_optimizer = false;
  // Units add their gradients to the sum itself: no slot, no ACCUMULATE. Of whole sums that are not reduced each round.
  bool adds_in_place = false;
  // What a rank keeps in host memory instead of on the device. Weights, with which all that is trainable goes, only
  // where it keeps no more of them than it updates.
  bool state_on_host = false, weights_on_host = false;

  // Units read them from where they were gathered to, or fetched.
  bool is_gathered() const { return shards_parameters || weights_on_host; }
  bool updates_slice_of_whole() const { return shards_optimizer && !shards_parameters; }
};

// One link of the chain. Sizes are per micro-batch, in bytes. The last unit is the head: its forward and backward are
// one LOSS instruction, it has no output and keeps nothing.
struct UnitSpec {
  std::string name;
  std::vector<int> reads;      // groups that its forward and backward read
  std::vector<int> gradients;  // groups that its backward gives gradients for (trainable ones)
  std::int64_t output_bytes = 0;
  std::int64_t saved_bytes = 0;  // written by forward, read by backward (its input boundary is kept besides)
  std::int64_t forward_workspace_bytes = 0;   // where what is saved has a place of its own
  std::int64_t backward_workspace_bytes = 0;  // LOSS uses this one
  bool backward_reads_input = true;           // whether backward reads the boundary that forward read
  bool recompute = false;                     // forward keeps nothing; it runs again before backward. Not the head
  bool input_on_host = false;  // recompute: its input boundary waits for that in host memory. Not the first unit
  // What each phase costs, for simulate.h: floating-point operations (multiply and add count two) and bytes between
  // processor and memory. LOSS takes backward's, RECOMPUTE forward's.
  double forward_flops = 0, backward_flops = 0;
  double forward_bytes_moved = 0, backward_bytes_moved = 0;
  double forward_attention_flops = 0, backward_attention_flops = 0;  // among the operations; the others are products
  std::int64_t smallest_side = 0;                                    // of its products' m, n and k

  // Of FORWARD, which keeps nothing where it will run again, and of RECOMPUTE.
  std::int64_t forward_workspace(bool keeps) const { return forward_workspace_bytes + (keeps ? 0 : saved_bytes); }
};

struct ChainSpec {
  std::vector<GroupSpec> groups;
  std::vector<UnitSpec> units;  // in forward order; at least one; the last is the head
};

// What of a step a program holds. The STEPs, with the gathers behind them, may be left to the pass that follows: there
// each comes before the first use of its weights, and the gathers hide behind the forward.
enum class Pass : std::uint8_t {
  closed,   // a whole step
  opening,  // all but the STEPs, which are then pending
  cycle,    // the pending STEPs, then all of the next step but its own
  drain,    // the pending STEPs
};
constexpr bool begins_with_steps(Pass pass) {
  return pass == Pass::cycle || pass == Pass::drain;
}
constexpr bool leaves_steps(Pass pass) {
  return pass == Pass::opening || pass == Pass::cycle;
}

// Of the state behind a step, for who reads it while training goes on. A run that takes them has memory for one in all
// of its passes; those that take none leave it alone. The opening pass has no STEP to take one after.
enum class Snapshots : std::uint8_t { none, kept, taken };

struct Options {
  Pass pass = Pass::closed;
  Snapshots snapshots = Snapshots::none;
  int world_size = 1;
  int replicas = 1;           // the ranks are so many sets of shard_ranks() neighbours; each set holds all slices
  int num_micro_batches = 1;  // M, over all ranks (layout/mesh.h says whose is which)
  bool reduce_each_micro_batch = false;  // also where whole sums are kept; bits do not depend on the ranks of a replica
  std::int64_t compute_element_bytes = 4;  // gradient slots and weights that units read
  std::int64_t wire_element_bytes = 4;     // of slots as reduce_scatter sends them
  std::int64_t accumulator_element_bytes = 4;
  std::int64_t state_bytes_per_element = 12;  // moments, and the master unless weights_are_master
  bool weights_are_master = true;             // units read the master weights themselves: they have one type
  // Every STEP waits for REPORT, for a clip factor or a decision to skip. Otherwise those of state_on_host need no
  // NORM and run in a closed pass as soon as the group's sum is there, beside the rest of the backward.
  bool steps_wait = true;
  bool overlap = true;     // false: one instruction at a time, of all lanes
  int gradient_slots = 2;  // how many units' gradients may wait for REDUCE while BACKWARD goes on; at least 1
  // Of sharded parameters:
  bool gather_once = false;         // they stay gathered from their first use in the step to their last
  int gather_ahead = 1;             // so many units before the one at work (visits.h); at least 0
  std::int64_t reuse_distance = 0;  // a group stays gathered when fewer elements of others are needed before it again
  std::int64_t max_live = 0;        // so many elements are gathered at most, but what one unit needs; 0: no bound

  int shard_ranks() const { return world_size / replicas; }
  int replica_of(int rank) const { return rank / shard_ranks(); }
  int slice_of(int rank) const { return rank % shard_ranks(); }

  // Whether the master weights are part of the group's state, not what units read (or what that is fetched from).
  bool has_own_master(const GroupSpec& group) const {
    return !weights_are_master || (group.state_on_host && !group.weights_on_host);
  }
  std::int64_t state_bytes(const GroupSpec& group) const {  // an element
    return state_bytes_per_element + (weights_are_master && has_own_master(group) ? compute_element_bytes : 0);
  }
  std::int64_t snapshot_bytes_per_element() const {  // moments and master, wherever that is
    return state_bytes_per_element + (weights_are_master ? compute_element_bytes : 0);
  }
};

}  // namespace trireme::schedule
