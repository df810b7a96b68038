#include "schedule/verify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "schedule/chains.h"
#include "schedule/verify_parts.h"

namespace trireme::schedule {
namespace {

struct Lowered {
  ChainSpec chain = make_small_chain(2, true);
  Options options;
  std::vector<Program> programs;

  explicit Lowered(Options given) : options(given), programs(lower_all(chain, options)) {}

  int index(int rank, const std::string& name) const {
    const auto& instructions = programs[rank].instructions;
    for (int i = 0; i < static_cast<int>(instructions.size()); ++i) {
      if (to_string(instructions[i], chain) == name) return i;
    }
    ADD_FAILURE() << "no instruction " << name;
    return 0;
  }
  Instruction& at(int rank, const std::string& name) { return programs[rank].instructions[index(rank, name)]; }
  // The first sentence; "" when nothing is found.
  std::string finding(std::int64_t budget = 0) const {
    const std::vector<Finding> findings = verify(chain, options, programs, budget);
    return findings.empty() ? "" : "rank " + std::to_string(findings[0].rank) + ": " + findings[0].what;
  }
};

const Options kTwoRanks{.world_size = 2, .num_micro_batches = 3, .reduce_each_micro_batch = true};

TEST(Verify, NamesTheRaceBehindAMissingWait) {
  Lowered lowered(kTwoRanks);
  lowered.at(1, "norm").waits.clear();
  EXPECT_EQ(lowered.finding(), "rank 1: norm may read accumulator embed while all_gather embed is using those bytes");
}

TEST(Verify, NamesTheFirstCollectiveThatDiffers) {
  Lowered lowered({.world_size = 2, .num_micro_batches = 2});
  auto& instructions = lowered.programs[1].instructions;
  const int head = lowered.index(1, "all_reduce head"), block = lowered.index(1, "all_reduce block1");
  // Both sums are complete before either is reduced, so that the exchange is right for rank 1 alone.
  std::rotate(instructions.begin() + head, instructions.begin() + head + 1, instructions.begin() + block + 1);
  for (Instruction& instruction : instructions) {
    for (int& wait : instruction.waits) {
      if (wait == head) {
        wait = block;
      } else if (wait > head && wait <= block) {
        --wait;
      }
    }
  }
  EXPECT_EQ(lowered.finding(), "rank 1: all_reduce block1 meets rank 0's all_reduce head or differs from it in size");
}

TEST(Verify, SaysWhatWouldBeReadInstead) {
  Lowered lowered({.num_micro_batches = 1});
  const Instruction& forward = lowered.at(0, "forward embed m0");
  Instruction& next = lowered.at(0, "forward block0 m0");
  const int input = find(lowered.programs[0], next.reads, BufferKind::activation);
  const int workspace = find(lowered.programs[0], forward.writes, BufferKind::workspace);
  std::replace(next.reads.begin(), next.reads.end(), input, workspace);
  EXPECT_EQ(
      lowered.finding(),
      "rank 0: forward block0 m0 must not read workspace embed m0 (512 bytes) but activation embed m0 (2048 bytes)");
}

TEST(Verify, SeesAnOverwriteByAnotherBufferInTheSamePlace) {
  Lowered lowered({.num_micro_batches = 1});
  Program& program = lowered.programs[0];
  const int saved = find(program, lowered.at(0, "forward block0 m0").writes, BufferKind::saved);
  const int workspace = find(program, lowered.at(0, "forward block1 m0").writes, BufferKind::workspace);
  program.buffers[workspace].offset = program.buffers[saved].offset;
  EXPECT_EQ(lowered.finding(), "rank 0: backward block0 m0: saved block0 m0 does not hold what was meant for it");
}

// Two writers that nobody orders: the late one may destroy what the other's reader is to see.
TEST(Verify, SeesUnorderedWriters) {
  const ChainSpec chain = make_small_chain(1, false);
  const Options options;
  Program program;
  program.buffers = {{BufferKind::workspace, 0, -1, 0, 512, 256}, {BufferKind::activation, 0, -1, 0, 512, 512}};
  program.instructions.resize(3);
  program.instructions[0].lane = Lane::reduce;
  program.instructions[0].writes = {0};
  program.instructions[1].writes = {1};
  program.instructions[2].reads = {1};
  const auto num_findings = [&] {
    Inspection inspection(chain, options, program, 0);
    check_order(inspection);
    return inspection.findings().size();
  };
  EXPECT_EQ(num_findings(), 1u);
  program.instructions[1].waits = {0};
  EXPECT_EQ(num_findings(), 0u);
}

TEST(Verify, HoldsTheArenaToItsBudget) {
  const Lowered lowered(kTwoRanks);
  EXPECT_EQ(lowered.finding(lowered.programs[0].arena_bytes), "");
  EXPECT_NE(lowered.finding(lowered.programs[0].arena_bytes - 1).find("the arena takes"), std::string::npos);
}

// Waiting for more than needed is slower, not wrong.
TEST(Verify, AllowsRedundantWaits) {
  for (int seed = 0; seed < 100; ++seed) {
    const Case random = make_random_case(seed);
    std::vector<Program> programs = lower_all(random.chain, random.options);
    Dice dice(seed);
    for (Program& program : programs) {
      for (int index = 1; index < static_cast<int>(program.instructions.size()); ++index) {
        if (dice.chance(30)) program.instructions[index].waits.push_back(dice.below(index));
      }
    }
    EXPECT_TRUE(verify(random.chain, random.options, programs).empty()) << "seed " << seed;
  }
}

// Programs of nonsense are findings, never a crash.
TEST(Verify, SurvivesNonsense) {
  const auto is_found = [](auto damage) {
    Lowered lowered(kTwoRanks);
    damage(lowered.programs);
    return !lowered.finding().empty();
  };
  const int extremes[] = {std::numeric_limits<int>::min(), -2, 1000000, std::numeric_limits<int>::max()};
  using Programs = std::vector<Program>;
  EXPECT_TRUE(is_found([](Programs& programs) { programs.pop_back(); }));
  EXPECT_TRUE(is_found([](Programs& programs) { std::swap(programs[0], programs[1]); }));
  EXPECT_TRUE(is_found([](Programs& programs) { programs[0].instructions.clear(); }));
  EXPECT_TRUE(is_found([](Programs& programs) { programs[1].buffers.clear(); }));
  for (const int value : extremes) {
    EXPECT_TRUE(is_found([=](Programs& programs) { programs[0].instructions[3].waits = {value}; }));
    EXPECT_TRUE(is_found([=](Programs& programs) { programs[0].instructions[3].reads = {value}; }));
    EXPECT_TRUE(is_found([=](Programs& programs) { programs[0].instructions[3].writes = {value}; }));
    EXPECT_TRUE(is_found([=](Programs& programs) { programs[0].instructions[1].unit = value; }));
    EXPECT_TRUE(is_found([=](Programs& programs) { programs[0].instructions[1].group = value; }));
    EXPECT_TRUE(is_found([=](Programs& programs) { programs[0].instructions[1].micro_batch = value; }));
    EXPECT_TRUE(is_found([=](Programs& programs) { programs[0].instructions[1].round = value; }));
    EXPECT_TRUE(is_found([=](Programs& programs) { programs[0].instructions[0].participants = value; }));
    EXPECT_TRUE(is_found([=](Programs& programs) { programs[0].buffers[0].offset = value; }));
    EXPECT_TRUE(is_found([=](Programs& programs) { programs[0].buffers[0].bytes = value; }));
    EXPECT_TRUE(is_found([=](Programs& programs) { programs[0].buffers[0].group = value; }));
  }
  EXPECT_TRUE(is_found(
      [](Programs& programs) { programs[0].buffers.back().bytes = std::numeric_limits<std::int64_t>::max(); }));
  EXPECT_TRUE(is_found([](Programs& programs) { programs[0].instructions[1].op = static_cast<Op>(99); }));
  EXPECT_TRUE(is_found([](Programs& programs) { programs[0].buffers[0].kind = static_cast<BufferKind>(99); }));
}

// 8 ranks, 34 units, 8 micro-batches a rank: about 4,000 instructions, checked before every launch.
TEST(Verify, ProvesALargeModel) {
  const ChainSpec chain = make_small_chain(32, true);
  const Options options{.world_size = 8, .num_micro_batches = 64, .reduce_each_micro_batch = true};
  EXPECT_TRUE(verify(chain, options, lower_all(chain, options)).empty());
}

}  // namespace
}  // namespace trireme::schedule
