// Gradients that units add to the sums themselves.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "schedule/chains.h"
#include "schedule/verify.h"

namespace trireme::schedule {
namespace {

ChainSpec in_place(ChainSpec chain) {
  for (GroupSpec& group : chain.groups) group.adds_in_place = true;
  return chain;
}

std::vector<std::string> names_of(const Program& program, const ChainSpec& chain) {
  std::vector<std::string> names;
  for (const Instruction& instruction : program.instructions) names.push_back(to_string(instruction, chain));
  return names;
}

Instruction& find_named(Program& program, const ChainSpec& chain, const std::string& name) {
  const auto found = std::find_if(program.instructions.begin(), program.instructions.end(),
                                  [&](const Instruction& one) { return to_string(one, chain) == name; });
  TRIREME_CHECK(found != program.instructions.end(), "no " + name);
  return *found;
}

// The first round overwrites, but for what another unit has put there; later ones add.
TEST(SumsInPlace, NeedNeitherSlotsNorAccumulate) {
  const ChainSpec chain = in_place(make_small_chain(1, true));  // tied
  const Program program = lower_all(chain, {.num_micro_batches = 2})[0];
  EXPECT_EQ(names_of(program, chain),
            (std::vector<std::string>{"count", "forward embed m0", "forward block0 m0", "loss head m0",
                                      "backward block0 m0", "backward embed m0 adds embed", "forward embed m1",
                                      "forward block0 m1", "loss head m1 adds head adds embed",
                                      "backward block0 m1 adds block0", "backward embed m1 adds embed", "norm",
                                      "report", "step embed", "step block0", "step head"}));
  for (const Buffer& buffer : program.buffers) EXPECT_NE(buffer.kind, BufferKind::gradient_slot);
}

TEST(SumsInPlace, AreReducedRightAfterTheLastContribution) {
  const ChainSpec chain = in_place(make_small_chain(1, false));
  const Program program = lower_all(chain, {.world_size = 2, .num_micro_batches = 4})[0];
  const std::vector<std::string> names = names_of(program, chain);
  const auto last_round = std::find(names.begin(), names.end(), "loss head m2 adds head");
  EXPECT_EQ((std::vector<std::string>(last_round, names.end())),
            (std::vector<std::string>{"loss head m2 adds head", "all_reduce head", "backward block0 m2 adds block0",
                                      "all_reduce block0", "backward embed m2 adds embed", "all_reduce embed", "norm",
                                      "report", "step embed", "step block0", "step head"}));
}

// A layer less of memory than with a slot for each unit's gradients.
TEST(SumsInPlace, TakeLessMemory) {
  const Options options{.num_micro_batches = 3};
  const ChainSpec chain = make_small_chain(3, false);
  const Program with_slots = lower_all(chain, options)[0], without = lower_all(in_place(chain), options)[0];
  EXPECT_EQ(without.persistent_bytes, with_slots.persistent_bytes);
  EXPECT_LT(without.arena_bytes, with_slots.arena_bytes);
}

TEST(SumsInPlace, AreRefusedWhereEachRoundIsReduced) {
  ChainSpec chain = in_place(make_small_chain(1, false));
  const Options each{.world_size = 2, .num_micro_batches = 2, .reduce_each_micro_batch = true};
  EXPECT_THROW(build_schedule(chain, each, 0), Error);
  for (GroupSpec& group : chain.groups) group.shards_gradients = group.shards_optimizer = true;
  EXPECT_THROW(build_schedule(chain, {.world_size = 2, .num_micro_batches = 4}, 0), Error);
}

TEST(SumsInPlace, AreProvenToHaveEachRoundOnce) {
  const ChainSpec chain = in_place(make_small_chain(1, true));
  const Options options{.num_micro_batches = 2};
  const auto first_finding = [&](const std::string& name, auto change) {
    std::vector<Program> programs = lower_all(chain, options);
    change(find_named(programs[0], chain, name));
    const std::vector<Finding> findings = verify(chain, options, programs, 0);
    return findings.empty() ? std::string() : findings[0].what;
  };
  EXPECT_EQ(first_finding("norm", [](Instruction&) {}), "");
  const auto overwrites = [](Instruction& one) {
    one.adds[0] = false;
    one.reads.erase(std::find(one.reads.begin(), one.reads.end(), one.writes[1]));
  };
  EXPECT_EQ(first_finding("backward block0 m1 adds block0", overwrites),
            "backward block0 m1 overwrites what is in the slot of block0");
  const auto adds = [](Instruction& one) {
    one.adds[0] = true;
    one.reads.push_back(one.writes[1]);
  };
  EXPECT_EQ(first_finding("backward block0 m0", adds),
            "backward block0 m0 adds block0 adds into an empty slot of block0");
}

}  // namespace
}  // namespace trireme::schedule
