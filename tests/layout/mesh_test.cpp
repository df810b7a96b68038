#include "layout/mesh.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace trireme {
namespace {

TEST(Mesh, GivesEveryDataRankTheSameNumberOfRanks) {
  for (const auto& [pp, replicate, shard, cp, tp] :
       {std::array{1, 2, 1, 1, 1}, std::array{2, 2, 3, 1, 2}, std::array{1, 1, 4, 2, 2}}) {
    Mesh mesh{.pp = pp, .dp_replicate = replicate, .dp_shard = shard, .cp = cp, .tp = tp};
    std::vector<int> ranks(static_cast<std::size_t>(mesh.num_data_ranks()), 0);
    for (mesh.rank = 0; mesh.rank < mesh.world_size(); ++mesh.rank)
      ++ranks.at(static_cast<std::size_t>(mesh.data_rank()));
    for (const int count : ranks) EXPECT_EQ(count, pp * cp * tp);
  }
}

TEST(MicroBatchSplit, GivesEachMicroBatchToOneRankInRankOrder) {
  for (int num_micro_batches = 1; num_micro_batches <= 9; ++num_micro_batches) {
    for (int num_ranks = 1; num_ranks <= num_micro_batches; ++num_ranks) {
      const MicroBatchSplit split{num_micro_batches, num_ranks};
      int next = 0;
      for (int round = 0; round < split.rounds(); ++round) {
        for (int rank = 0; rank < num_ranks; ++rank) {
          const bool works = rank < split.ranks_in_round(round);
          EXPECT_EQ(split.micro_batch(round, rank), works ? next++ : -1);
        }
      }
      EXPECT_EQ(next, num_micro_batches);
    }
  }
}

}  // namespace
}  // namespace trireme
