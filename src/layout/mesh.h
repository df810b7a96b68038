// The one place that knows ranks: which rank has which coordinate, and which micro-batch is whose.
#pragma once
#include <cstdint>
#include <vector>

namespace trireme {

// Axes from slowest to fastest: pp, dp_replicate, dp_shard, cp, tp. An axis of size 1 makes no communicator.
struct Mesh {
  int rank = 0;
  int pp = 1, dp_replicate = 1, dp_shard = 1, cp = 1, tp = 1;
  int world_size() const { return pp * dp_replicate * dp_shard * cp * tp; }
  int num_data_ranks() const { return dp_replicate * dp_shard; }
  int data_rank() const { return rank / (cp * tp) % num_data_ranks(); }
};

// A step has num_micro_batches M; data rank r works in round k on micro-batch k*R + r where that is below M (R <= M).
struct MicroBatchSplit {
  int num_micro_batches = 1;  // M
  int num_data_ranks = 1;     // R
  int rounds() const { return (num_micro_batches + num_data_ranks - 1) / num_data_ranks; }
  // -1 where this rank has none in the round.
  int micro_batch(int round, int data_rank) const {
    const int index = round * num_data_ranks + data_rank;
    return index < num_micro_batches ? index : -1;
  }
  // Ranks 0 .. n-1 work in this round.
  int ranks_in_round(int round) const {
    const int left = num_micro_batches - round * num_data_ranks;
    return left < num_data_ranks ? left : num_data_ranks;
  }
};

}  // namespace trireme
