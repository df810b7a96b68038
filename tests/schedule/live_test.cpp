// Options::max_live: how much is gathered at a time.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "schedule/chains.h"
#include "schedule/verify.h"

namespace trireme::schedule {
namespace {

// Counts what is gathered, in issue order, as it lies in memory.
struct Count {
  std::int64_t most = 0;
  bool above = false;  // above the bound by more than the next unit's own need
  int gathers = 0;
};

Count count_live(const Case& setting, const Program& program, std::int64_t bound) {
  Count count;
  std::multiset<int> live;
  const auto elements = [&] {
    std::int64_t sum = 0;
    for (const int group : live) sum += setting.chain.groups[group].numel;
    return sum;
  };
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    if (instruction.op == Op::release) live.erase(live.find(instruction.group));
    if (find(program, instruction.writes, BufferKind::gathered) < 0 || instruction.op == Op::release) continue;
    live.insert(instruction.group);
    ++count.gathers;
    count.most = std::max(count.most, elements());
    if (elements() <= bound) continue;
    const auto at =
        std::find_if(program.instructions.begin() + static_cast<std::ptrdiff_t>(i), program.instructions.end(),
                     [](const Instruction& next) { return next.unit >= 0 && next.lane == Lane::compute; });
    const std::vector<int>* reads = at == program.instructions.end() ? nullptr : &setting.chain.units[at->unit].reads;
    for (const int group : live) {
      count.above |= reads == nullptr || std::find(reads->begin(), reads->end(), group) == reads->end();
    }
  }
  return count;
}

// Random plans of every kind: never more than the bound, but for a unit alone; and the bound is not just luck.
TEST(MaxLive, IsNeverExceededButByOneUnitAlone) {
  int sharded = 0, bounded = 0, unbounded = 0;
  for (std::uint64_t seed = 0; sharded < 400; ++seed) {
    Case random = make_random_case(seed);
    if (random.options.max_live == 0) continue;
    ++sharded;
    const std::int64_t bound = random.options.max_live;
    // Rank 0 has work in every round, so each gathering has a unit behind it.
    const Count with = count_live(random, build_schedule(random.chain, random.options, 0), bound);
    ASSERT_FALSE(with.above) << "seed " << seed << ": " << describe(random);
    random.options.max_live = 0;
    const Count without = count_live(random, build_schedule(random.chain, random.options, 0), bound);
    bounded += without.above;
    unbounded += !without.above;
    ASSERT_GE(with.gathers, without.gathers) << "seed " << seed;
    // Where all would fit, nothing changes.
    if (without.most <= bound) {
      ASSERT_EQ(with.gathers, without.gathers) << "seed " << seed;
    }
  }
  EXPECT_GT(bounded, 50);
  EXPECT_GT(unbounded, 50);
}

// Programs that gather more than the bound are found, and only they.
TEST(MaxLive, VerifyFindsWhatExceedsIt) {
  int harmful = 0, harmless = 0;
  for (std::uint64_t seed = 0; (harmful < 300 || harmless < 100) && !HasFailure(); ++seed) {
    Case random = make_random_case(seed);
    const std::int64_t bound = random.options.max_live;
    if (bound == 0) continue;
    Dice dice(seed);
    if (dice.chance(50)) random.options.max_live = 0;  // a builder that forgets the bound
    std::vector<Program> programs = lower_all(random.chain, random.options);
    if (random.options.max_live > 0) {  // one that gathers, on all ranks, before it has released
      int gathers = 0, turn = 0;
      for (const Instruction& i : programs[0].instructions) gathers += i.op == Op::gather;
      if (gathers == 0) continue;
      turn = dice.below(gathers);
      const int distance = dice.between(1, 4);
      for (Program& program : programs) {
        int left = turn;
        auto at = program.instructions.begin();
        for (; at->op != Op::gather || left-- > 0;) ++at;
        // Behind the gathering before it, so that the collectives keep their order.
        auto to = at;
        for (int i = 0; i < distance && to != program.instructions.begin() && !is_collective(*(to - 1)); ++i) --to;
        std::rotate(to, at, at + 1);
        program = lower(program, random.options);
      }
    }
    random.options.max_live = bound;
    const bool exceeds = count_live(random, programs[0], bound).above;
    const auto findings = verify(random.chain, random.options, programs);
    const bool found = std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
      return finding.what.find("gathered elements of at most") != std::string::npos;
    });
    // A group that is gathered twice at a time is found as that.
    EXPECT_FALSE(exceeds && findings.empty()) << "seed " << seed << ": missed; " << describe(random);
    EXPECT_FALSE(!exceeds && found) << "seed " << seed << ": " << describe(random);
    harmful += exceeds && found;
    harmless += !exceeds;
  }
}

}  // namespace
}  // namespace trireme::schedule
