#include "schedule/lower.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "schedule/chains.h"
#include "schedule/place.h"

namespace trireme::schedule {
namespace {

// Lifetimes of a tier's transient buffers in issue order, without grace for gradient slots.
std::vector<Lifetime> transient_lifetimes(const Program& program, Tier tier = Tier::device) {
  std::vector<Lifetime> lifetimes;
  for (int id = 0; id < static_cast<int>(program.buffers.size()); ++id) {
    if (is_persistent(program.buffers[id].kind) || program.buffers[id].tier != tier) continue;
    Lifetime lifetime{-1, -1, program.buffers[id].bytes};
    for (int index = 0; index < static_cast<int>(program.instructions.size()); ++index) {
      const Instruction& instruction = program.instructions[index];
      const auto in = [&](const std::vector<int>& list) {
        return std::find(list.begin(), list.end(), id) != list.end();
      };
      if (!in(instruction.reads) && !in(instruction.writes)) continue;
      if (lifetime.begin < 0) lifetime.begin = index;
      lifetime.end = index;
    }
    lifetimes.push_back(lifetime);
  }
  return lifetimes;
}

// Placing costs little more than what lives at one time: 2 % on average and never over 15 %.
TEST(Lower, PacksTheArenaNearTheLowerBound) {
  double sum = 0, worst = 0;
  const int cases = 200;
  for (int seed = 0; seed < cases; ++seed) {
    Case random = make_random_case(seed);
    random.options.gradient_slots = 1;
    random.options.gather_ahead = 0;  // no grace for fetched slices either
    const Program program = lower_all(random.chain, random.options)[0];
    const std::int64_t bound = max_live_bytes(transient_lifetimes(program));
    ASSERT_GE(program.arena_bytes, bound) << "seed " << seed;
    const double ratio = bound == 0 ? 1 : static_cast<double>(program.arena_bytes) / static_cast<double>(bound);
    EXPECT_LE(ratio, 1.15) << "seed " << seed << ": " << describe(random);
    sum += ratio;
    worst = std::max(worst, ratio);
  }
  std::printf("arena / most live bytes over %d chains: mean %.4f, worst %.4f\n", cases, sum / cases, worst);
  EXPECT_LE(sum / cases, 1.02);
}

// A large model's shape: equal blocks, a head and an embedding several times a block.
TEST(Lower, PacksAModelOf34UnitsWithin15Percent) {
  ChainSpec chain = make_small_chain(32, false);
  for (UnitSpec& unit : chain.units) {
    unit.forward_workspace_bytes = 60000;
    unit.backward_workspace_bytes = 90000;
  }
  for (const bool each : {false, true}) {
    const Options options{
        .world_size = 2, .num_micro_batches = 8, .reduce_each_micro_batch = each, .gradient_slots = 1};
    const Program program = lower_all(chain, options)[0];
    const double bound = static_cast<double>(max_live_bytes(transient_lifetimes(program)));
    EXPECT_LE(static_cast<double>(program.arena_bytes) / bound, 1.15);
  }
}

// Buffers that live at the same time share no byte, and every place is aligned and inside its space.
TEST(Lower, KeepsLivingBuffersApart) {
  for (int seed = 0; seed < 100; ++seed) {
    const Case random = make_random_case(seed);
    for (const Program& program : lower_all(random.chain, random.options)) {
      for (const Tier tier : {Tier::device, Tier::host}) {
        std::vector<Buffer> transient;
        for (const Buffer& buffer : program.buffers) {
          ASSERT_EQ(buffer.offset % 256, 0) << "seed " << seed;
          ASSERT_GE(buffer.offset, 0) << "seed " << seed;
          ASSERT_LE(buffer.offset + buffer.bytes, space_bytes(program, buffer));
          if (!is_persistent(buffer.kind) && buffer.tier == tier) transient.push_back(buffer);
        }
        const std::vector<Lifetime> lifetimes = transient_lifetimes(program, tier);
        for (std::size_t a = 0; a < transient.size(); ++a) {
          for (std::size_t b = 0; b < a; ++b) {
            const bool in_time = lifetimes[a].begin <= lifetimes[b].end && lifetimes[b].begin <= lifetimes[a].end;
            const bool in_space = transient[a].offset < transient[b].offset + transient[b].bytes &&
                                  transient[b].offset < transient[a].offset + transient[a].bytes;
            ASSERT_FALSE(in_time && in_space) << "seed " << seed << ": " << to_string(transient[a], random.chain)
                                              << " and " << to_string(transient[b], random.chain);
          }
        }
      }
    }
  }
}

// With gradient_slots = k, k - 1 units run on while a reduce is under way before one must wait for it.
TEST(Lower, GradientSlotsLetBackwardRunAhead) {
  ChainSpec chain = make_small_chain(8, false);
  for (GroupSpec& group : chain.groups) group.numel = 24576;
  const auto backwards_ahead = [&](int slots) {
    const Options options{
        .world_size = 2, .num_micro_batches = 2, .reduce_each_micro_batch = true, .gradient_slots = slots};
    const Program program = lower_all(chain, options)[0];
    int fewest = 100;
    for (int index = 0; index < static_cast<int>(program.instructions.size()); ++index) {
      const Instruction& instruction = program.instructions[index];
      if (instruction.op != Op::backward) continue;
      for (const int wait : instruction.waits) {
        int units = 0;
        for (int i = wait; i < index; ++i) units += program.instructions[i].op == Op::backward;
        fewest = std::min(fewest, units);
      }
    }
    return fewest;
  };
  EXPECT_EQ(backwards_ahead(1), 0);
  EXPECT_EQ(backwards_ahead(2), 1);
  EXPECT_EQ(backwards_ahead(3), 2);
}

// Each of the three hazards asks for a wait across lanes, and none is written down twice.
TEST(Lower, WaitsForWritersAndReaders) {
  Program program;
  program.buffers = {{BufferKind::token_count, -1, -1, -1, 16}, {BufferKind::gradient_norm, -1, -1, -1, 16}};
  const auto add = [&](Lane lane, std::vector<int> reads, std::vector<int> writes) {
    Instruction& instruction = program.instructions.emplace_back();
    instruction.lane = lane;
    instruction.reads = std::move(reads);
    instruction.writes = std::move(writes);
  };
  add(Lane::reduce, {}, {0});
  add(Lane::compute, {}, {0});    // write after write
  add(Lane::reduce, {0}, {1});    // read after write
  add(Lane::compute, {}, {0});    // write after read
  add(Lane::compute, {1}, {});    // known by the wait before
  add(Lane::reduce, {}, {1});     // write after read
  add(Lane::reduce, {0, 1}, {});  // known too
  const Program lowered = lower(program, {});
  std::vector<std::vector<int>> waits;
  for (const Instruction& instruction : lowered.instructions) waits.push_back(instruction.waits);
  EXPECT_EQ(waits, (std::vector<std::vector<int>>{{}, {0}, {1}, {2}, {}, {4}, {}}));
}

}  // namespace
}  // namespace trireme::schedule
