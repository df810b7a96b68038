// Collectives on ranks that are threads, on every communicator that such ranks can have: values, order of summation.
#include "comm/collectives.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <random>

#include "base/error.h"
#include "comm/ranks.h"
#include "comm/reference.h"
#include "comm/subset.h"

namespace trireme::comm {
namespace {

class Collectives : public ::testing::TestWithParam<Backend> {
 protected:
  static void run_ranks(int world_size, const std::function<void(Communicator&)>& body) {
    comm::run_ranks(world_size, body, GetParam().make);
  }
  static void check_reduce_scatter(const ReduceCase& c, std::mt19937_64& random);
};

INSTANTIATE_TEST_SUITE_P(Backends, Collectives, ::testing::ValuesIn(kBackends),
                         [](const auto& backend) { return backend.param.name; });

void Collectives::check_reduce_scatter(const ReduceCase& c, std::mt19937_64& random) {
  const std::int64_t numel = c.slice_numel * c.world_size;
  std::vector<std::vector<std::byte>> slots;
  for (int r = 0; r < c.participants; ++r) slots.push_back(random_slot(random, c.types.slot, numel));
  std::vector<std::vector<std::byte>> accumulators;
  for (int r = 0; r < c.world_size; ++r) accumulators.push_back(random_slot(random, c.types.sum, numel));
  const auto before = accumulators;

  run_ranks(c.world_size, [&](Communicator& comm) {
    const int r = comm.rank();
    const void* slot = r < c.participants ? slots[r].data() : nullptr;
    std::byte* sum = accumulators[r].data() + r * c.slice_numel * size_of(c.types.sum);
    ordered_reduce_scatter(comm, slot, c.types, sum, c.slice_numel, c.participants, c.first);
  });

  for (int rank = 0; rank < c.world_size; ++rank) {
    ASSERT_EQ(accumulators[rank], serial_sum(c, rank, slots, before[rank]))
        << "rank " << rank << " of " << c.world_size << ", " << c.participants << " participants, slice "
        << c.slice_numel << ", " << to_string(c.types.slot) << " sent as " << to_string(c.types.wire) << " into "
        << to_string(c.types.sum) << (c.first ? ", first" : "");
  }
}

class CountingCommunicator : public Communicator {
 public:
  explicit CountingCommunicator(Communicator& comm) : comm_(comm) {}
  int rank() const override { return comm_.rank(); }
  int world_size() const override { return comm_.world_size(); }
  std::unique_ptr<Transfer> send(std::span<const std::byte> bytes, int to) override {
    bytes_sent_ += bytes.size();
    return comm_.send(bytes, to);
  }
  std::unique_ptr<Transfer> receive(std::span<std::byte> bytes, int from) override {
    return comm_.receive(bytes, from);
  }
  void abort(const std::string& reason) noexcept override { comm_.abort(reason); }
  void throw_if_broken() const override { comm_.throw_if_broken(); }
  std::uint64_t bytes_sent() const { return bytes_sent_; }

 private:
  Communicator& comm_;
  std::uint64_t bytes_sent_ = 0;
};

std::uint64_t fresh_seed() {
  const std::uint64_t seed = std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

// DESIGN 5: the ranks' slots are added one after another in rank order, whoever adds them.
TEST_P(Collectives, ReduceScatterEqualsTheSerialSumBitForBit) {
  std::mt19937_64 random(fresh_seed());
  for (int trial = 0; trial < 120; ++trial) {
    const ReduceCase c = random_case(random, 1 + static_cast<int>(random() % 5), 3000);
    check_reduce_scatter(c, random);
    if (HasFatalFailure()) return;
  }
}

TEST_P(Collectives, ReduceScatterOfNothingNeedsNoSlot) {
  run_ranks(3, [](Communicator& comm) {
    ordered_reduce_scatter(comm, nullptr, {}, nullptr, 0, 2, true);
    barrier(comm);
  });
}

TEST_P(Collectives, ReduceScatterOfManyChunksEqualsTheSerialSum) {
  std::mt19937_64 random(fresh_seed());
  for (const std::int64_t slice : {131072, 131073, 400000}) {
    using enum DType;
    check_reduce_scatter({.world_size = 3, .participants = 2, .slice_numel = slice, .first = true}, random);
    for (const ReduceTypes& types :
         {ReduceTypes{bf16, bf16, f32}, {f16, f16, f32}, {f32, bf16, f32}, {f32, bf16, bf16}}) {
      check_reduce_scatter({.world_size = 2, .participants = 2, .slice_numel = slice, .types = types, .first = false},
                           random);
    }
  }
}

TEST_P(Collectives, AllReduceInPlaceEqualsTheSerialSumOnEveryRank) {
  std::mt19937_64 random(fresh_seed());
  for (const std::int64_t numel : {0, 1, 3, 255, 2048, 140000, 700001}) {  // parts come out even or not
    for (int world_size = 1; world_size <= 5; ++world_size) {
      std::vector<std::vector<float>> accumulators;
      for (int r = 0; r < world_size; ++r) accumulators.push_back(random_floats(random, numel));
      std::vector<float> expected = accumulators[0];
      for (int r = 1; r < world_size; ++r) {
        for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += accumulators[r][i];
      }
      run_ranks(world_size, [&](Communicator& comm) {
        ordered_all_reduce(comm, accumulators[comm.rank()].data(), DType::f32, numel);
      });
      for (int r = 0; r < world_size; ++r) {
        EXPECT_TRUE(same_bits(accumulators[r], expected))
            << "rank " << r << " of " << world_size << ", " << numel << " elements";
      }
    }
  }
}

TEST_P(Collectives, SumsOfBf16AreRoundedInRankOrder) {
  std::mt19937_64 random(fresh_seed());
  for (const std::int64_t slice : {1, 300, 70000}) {
    for (int world_size = 1; world_size <= 4; ++world_size) {
      std::vector<std::vector<std::byte>> sums, scattered;
      for (int r = 0; r < world_size; ++r) sums.push_back(random_slot(random, DType::bf16, slice * world_size));
      scattered = sums;
      ReduceCase c{.world_size = world_size, .participants = world_size, .slice_numel = slice};
      c.types = {DType::bf16, DType::bf16, DType::bf16};
      auto whole = sums[0];
      for (int r = 0; r < world_size; ++r) whole = serial_sum(c, r, sums, whole);
      run_ranks(world_size, [&](Communicator& comm) {
        const int r = comm.rank();
        ordered_scatter_sums(comm, scattered[r].data(), DType::bf16, slice);
      });
      for (int r = 0; r < world_size; ++r) EXPECT_EQ(scattered[r], serial_sum(c, r, sums, sums[r]));
      run_ranks(world_size, [&](Communicator& comm) {
        ordered_all_reduce(comm, sums[comm.rank()].data(), DType::bf16, slice * comm.world_size());
      });
      for (int r = 0; r < world_size; ++r) EXPECT_EQ(sums[r], whole) << "rank " << r << " of " << world_size;
    }
  }
}

// What is rounded for the wire is half as long on it.
TEST_P(Collectives, RoundedSlotsSendHalfTheBytes) {
  using enum DType;
  const auto bytes_sent = [](const ReduceTypes& types) {
    std::atomic<std::uint64_t> sent = 0;
    run_ranks(3, [&](Communicator& comm) {
      CountingCommunicator counting(comm);
      std::vector<float> slot(3 * 1000, 1.0f), sum(1000);
      ordered_reduce_scatter(counting, slot.data(), types, sum.data(), 1000, 3, true);
      sent += counting.bytes_sent();
    });
    return sent.load();
  };
  EXPECT_EQ(bytes_sent({f32, f32, f32}), 3u * 2 * 1000 * 4);
  EXPECT_EQ(bytes_sent({f32, bf16, f32}), 3u * 2 * 1000 * 2);
}

TEST_P(Collectives, ScatterSumsChangesOwnSlicesOnly) {
  std::mt19937_64 random(fresh_seed());
  for (const std::int64_t slice : {0, 1, 300, 140000}) {
    for (int world_size = 1; world_size <= 4; ++world_size) {
      std::vector<std::vector<float>> accumulators;
      for (int r = 0; r < world_size; ++r) accumulators.push_back(random_floats(random, slice * world_size));
      const auto before = accumulators;
      run_ranks(world_size, [&](Communicator& comm) {
        ordered_scatter_sums(comm, accumulators[comm.rank()].data(), DType::f32, slice);
      });
      for (int r = 0; r < world_size; ++r) {
        std::vector<float> expected = before[r];
        for (std::int64_t i = r * slice; i < (r + 1) * slice; ++i) {
          expected[i] = before[0][i];
          for (int source = 1; source < world_size; ++source) expected[i] += before[source][i];
        }
        EXPECT_TRUE(same_bits(accumulators[r], expected)) << "rank " << r << " of " << world_size;
      }
    }
  }
}

// Two halves of the ranks, and the ranks of equal place in them, each as communicators of their own.
TEST_P(Collectives, SubsetsAreCommunicatorsOfTheirOwn) {
  run_ranks(6, [](Communicator& comm) {
    const int half = comm.rank() / 3, place = comm.rank() % 3;
    const auto neighbours = make_subset(comm, {3 * half, 3 * half + 1, 3 * half + 2});
    const auto across = make_subset(comm, {place, place + 3});
    EXPECT_EQ(neighbours->rank(), place);
    EXPECT_EQ(neighbours->world_size(), 3);
    EXPECT_EQ(across->rank(), half);
    for (int round = 0; round < 50; ++round) {
      float mine = static_cast<float>(1 << comm.rank());
      ordered_all_reduce(*neighbours, &mine, DType::f32, 1);
      EXPECT_EQ(mine, half == 0 ? 7 : 56);
      ordered_all_reduce(*across, &mine, DType::f32, 1);
      EXPECT_EQ(mine, 63);
    }
  });
}

TEST_P(Collectives, BroadcastFromAnyRootReachesAll) {
  for (int world_size = 1; world_size <= 6; ++world_size) {
    for (int root = 0; root < world_size; ++root) {
      run_ranks(world_size, [&](Communicator& comm) {
        std::vector<std::byte> bytes(1000, std::byte(comm.rank()));
        broadcast(comm, bytes, root);
        EXPECT_EQ(bytes, std::vector<std::byte>(1000, std::byte(root))) << comm.rank() << " of " << world_size;
      });
    }
  }
}

TEST_P(Collectives, AllGatherPutsPartsInRankOrder) {
  for (int world_size = 1; world_size <= 5; ++world_size) {
    for (const bool in_place : {false, true}) {
      run_ranks(world_size, [&](Communicator& comm) {
        std::vector<int> all(world_size * 7, -1), mine(7, comm.rank()), expected;
        for (int r = 0; r < world_size; ++r) expected.insert(expected.end(), 7, r);
        const std::span part(all.data() + comm.rank() * 7, 7);
        if (in_place) std::copy(mine.begin(), mine.end(), part.begin());
        all_gather(comm, in_place ? std::as_bytes(part) : std::as_bytes(std::span(mine)),
                   std::as_writable_bytes(std::span(all)));
        EXPECT_EQ(all, expected);
      });
    }
  }
}

// No rank leaves before the last has come.
TEST_P(Collectives, BarrierHoldsUntilAllCame) {
  for (int world_size = 2; world_size <= 5; ++world_size) {
    std::atomic<int> arrived = 0;
    run_ranks(world_size, [&](Communicator& comm) {
      for (int round = 1; round <= 20; ++round) {
        ++arrived;
        barrier(comm);
        EXPECT_GE(arrived.load(), round * world_size);
        barrier(comm);
      }
    });
  }
}

TEST_P(Collectives, MixOfCollectivesInOneOrderNeverHangs) {
  const std::uint64_t seed = fresh_seed();
  run_ranks(4, [&](Communicator& comm) {
    std::mt19937_64 random(seed);  // the same calls on every rank
    std::vector<float> accumulator(4 * 5000, 1.0f), slot(4 * 5000, 1.0f);
    for (int i = 0; i < 200; ++i) {
      const int participants = 1 + static_cast<int>(random() % 4);
      const std::int64_t slice = static_cast<std::int64_t>(random() % 5000);
      switch (random() % 4) {
        case 0: barrier(comm); break;
        case 1: broadcast(comm, std::as_writable_bytes(std::span(slot)), static_cast<int>(random() % 4)); break;
        case 2: ordered_all_reduce(comm, accumulator.data(), DType::f32, slice); break;
        case 3:
          ordered_reduce_scatter(comm, comm.rank() < participants ? slot.data() : nullptr, {},
                                 accumulator.data() + comm.rank() * slice, slice, participants, true);
          break;
      }
    }
  });
}

}  // namespace
}  // namespace trireme::comm
