// What a schedule must know of a model and of the way it is run: names and sizes, no tensors.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace trireme::schedule {

struct GroupSpec {
  std::string name;
  std::int64_t numel = 0;  // padded; a multiple of world_size * 256
  bool trainable = true;
};

// One link of the chain. Sizes are per micro-batch, in bytes. The last unit is the head: its forward and backward are
// one LOSS instruction, it has no output and keeps nothing.
struct UnitSpec {
  std::string name;
  std::vector<int> reads;      // groups that its forward and backward read
  std::vector<int> gradients;  // groups that its backward gives gradients for (trainable ones)
  std::int64_t output_bytes = 0;
  std::int64_t saved_bytes = 0;  // written by forward, read by backward (its input boundary is kept besides)
  std::int64_t forward_workspace_bytes = 0;
  std::int64_t backward_workspace_bytes = 0;  // LOSS uses this one
  bool backward_reads_input = true;           // whether backward reads the boundary that forward read
};

struct ChainSpec {
  std::vector<GroupSpec> groups;
  std::vector<UnitSpec> units;  // in forward order; at least one; the last is the head
};

struct Options {
  int world_size = 1;
  int num_micro_batches = 1;               // M, over all ranks (layout/mesh.h says whose is which)
  bool reduce_each_micro_batch = false;    // zero2's order: bits do not depend on the number of ranks
  std::int64_t compute_element_bytes = 4;  // gradient slots and weights that units read
  std::int64_t accumulator_element_bytes = 4;
  std::int64_t state_bytes_per_element = 12;  // master, first and second moment
  bool weights_are_master = true;             // fp32 compute: units read the master weights themselves
  int gradient_slots = 2;  // how many units' gradients may wait for REDUCE while BACKWARD goes on; at least 1
};

}  // namespace trireme::schedule
