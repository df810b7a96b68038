#include "schedule/rank_classes.h"

#include <algorithm>
#include <set>
#include <utility>

#include "layout/mesh.h"

namespace trireme::schedule {

std::vector<int> representative_ranks(const Options& options) {
  const MicroBatchSplit split{options.num_micro_batches, options.world_size};
  const int working = split.ranks_in_round(split.rounds() - 1);
  std::set<std::pair<bool, int>> classes;
  std::vector<int> ranks;
  for (int rank = 0; rank < options.world_size; ++rank) {
    const int before = options.replica_of(rank) * options.shard_ranks();
    const int of_replica = std::clamp(working - before, 0, options.shard_ranks());
    if (classes.emplace(rank < working, of_replica).second) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace trireme::schedule
