#include "schedule/rank_classes.h"

#include <algorithm>
#include <set>
#include <utility>

#include "layout/mesh.h"

namespace trireme::schedule {

int working_ranks(const Options& options, int replica, int round) {
  const MicroBatchSplit split{options.num_micro_batches, options.world_size};
  return std::clamp(split.ranks_in_round(round) - replica * options.shard_ranks(), 0, options.shard_ranks());
}

std::vector<int> representative_ranks(const Options& options) {
  const MicroBatchSplit split{options.num_micro_batches, options.world_size};
  const int working = split.ranks_in_round(split.rounds() - 1);
  std::set<std::pair<bool, int>> classes;
  std::vector<int> ranks;
  for (int rank = 0; rank < options.world_size; ++rank) {
    const int of_replica = working_ranks(options, options.replica_of(rank), split.rounds() - 1);
    if (classes.emplace(rank < working, of_replica).second) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace trireme::schedule
