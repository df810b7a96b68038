// SNAPSHOT: where it stands in a pass, what it may not do, what it costs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "schedule/draw.h"
#include "schedule/interpreter.h"
#include "schedule/mutations.h"
#include "schedule/simulate.h"
#include "schedule/verify.h"
#include "support/expect_error.h"

namespace trireme::schedule {
namespace {

using Lines = std::vector<std::string>;

// What moves groups, in words; `<` names the waits on other lanes.
Lines steps_of(const ChainSpec& chain, const Program& program) {
  Lines lines;
  for (const Instruction& instruction : program.instructions) {
    const bool is_update = instruction.op == Op::step || instruction.op == Op::snapshot ||
                           instruction.op == Op::gather || instruction.op == Op::fetch;
    const bool uses_it = instruction.op == Op::forward || instruction.op == Op::loss;
    if (!is_update && !uses_it) continue;
    std::string line = to_string(instruction, chain);
    if (is_update) {
      for (const int wait : instruction.waits) line += " < " + to_string(program.instructions[wait], chain);
    }
    lines.push_back(line);
  }
  return lines;
}

// The unit a and the head h, each with a group of its own.
ChainSpec two_groups(bool slices) {
  ChainSpec chain;
  chain.groups = {{"a", 512, true}, {"h", 512, true}};
  for (GroupSpec& group : chain.groups) group.shards_optimizer = slices;
  chain.units = {{"a", {0}, {0}, 256, 256}, {"head", {1}, {1}}};
  return chain;
}

Program proven(const ChainSpec& chain, const Options& options) {
  const std::vector<Program> programs = lower_all(chain, options);
  for (const Finding& finding : verify(chain, options, programs)) ADD_FAILURE() << finding.what;
  return programs[0];
}

TEST(Snapshot, ComesBehindTheStepInAClosedPass) {
  const ChainSpec chain = two_groups(false);
  const Options options{.snapshots = Snapshots::taken, .world_size = 2, .num_micro_batches = 2};
  EXPECT_EQ(steps_of(chain, proven(chain, options)), (Lines{"forward a m0", "loss head m0", "step a < report",
                                                            "snapshot a < step a", "step h", "snapshot h < step h"}));
}

// Nothing that the forward waits for waits for a copy.
TEST(Snapshot, ComesBehindTheFirstUseInAPassThatBeginsWithSteps) {
  const ChainSpec chain = two_groups(true);
  const Options options{.pass = Pass::cycle, .snapshots = Snapshots::taken, .world_size = 2, .num_micro_batches = 4};
  EXPECT_EQ(steps_of(chain, proven(chain, options)),
            (Lines{"step a", "gather a < step a", "step h", "gather h < step h", "forward a m0",
                   "snapshot a < gather a", "loss head m0", "snapshot h < gather h", "forward a m2", "loss head m2"}));
}

TEST(Snapshot, ComesWithTheStepsOfADrain) {
  ChainSpec chain = two_groups(true);
  offload(chain, true, false, false);
  const Options options{.pass = Pass::drain, .snapshots = Snapshots::taken, .world_size = 2, .num_micro_batches = 2};
  EXPECT_EQ(steps_of(chain, proven(chain, options)), (Lines{"step a", "fetch a", "gather a < fetch a", "snapshot a",
                                                            "step h", "fetch h", "gather h < fetch h", "snapshot h"}));
}

// Where nothing waits for the norm, right behind the update: the backward of the units before hides it.
TEST(Snapshot, ComesDuringTheBackwardWhereStepsDo) {
  ChainSpec chain = two_groups(false);
  offload(chain, true, false, false);
  const Options options{.snapshots = Snapshots::taken, .num_micro_batches = 1, .steps_wait = false};
  const Program program = proven(chain, options);
  const auto index_of = [&](const std::string& name) {
    const auto& list = program.instructions;
    return std::find_if(list.begin(), list.end(), [&](const auto& i) { return to_string(i, chain) == name; }) -
           list.begin();
  };
  EXPECT_EQ(index_of("snapshot h"), index_of("fetch h") + 1);
  EXPECT_LT(index_of("snapshot h"), index_of("backward a m0"));
}

TEST(Snapshot, LeavesOutWhatIsFrozen) {
  ChainSpec chain = two_groups(false);
  chain.groups[0].trainable = false;
  chain.units[0].gradients.clear();
  const Options options{.snapshots = Snapshots::taken, .num_micro_batches = 1};
  EXPECT_EQ(steps_of(chain, proven(chain, options)),
            (Lines{"forward a m0", "loss head m0", "step h < report", "snapshot h < step h"}));
}

TEST(Snapshot, IsRefusedWhereThereIsNoStep) {
  const Options options{.pass = Pass::opening, .snapshots = Snapshots::taken, .num_micro_batches = 1};
  const std::string what = testing::expect_error(1000, [&] { build_schedule(two_groups(false), options, 0); });
  EXPECT_NE(what.find("a snapshot in a pass that has no step"), std::string::npos) << what;
}

// A pass that takes none must leave the one that another has taken alone, and has its memory in the same place.
TEST(Snapshot, SurvivesAPassThatTakesNone) {
  const ChainSpec chain = two_groups(true);
  Options options{.pass = Pass::cycle, .snapshots = Snapshots::taken, .world_size = 2, .num_micro_batches = 2};
  const std::vector<Program> taking = lower_all(chain, options);
  options.snapshots = Snapshots::kept;
  std::vector<Program> keeping = lower_all(chain, options);
  EXPECT_TRUE(verify(chain, options, keeping).empty());
  for (std::size_t i = 0; i < keeping[0].buffers.size(); ++i) {
    if (!is_persistent(keeping[0].buffers[i].kind)) continue;
    EXPECT_EQ(keeping[0].buffers[i].offset, taking[0].buffers[i].offset);
  }
  keeping = taking;
  EXPECT_EQ(verify(chain, options, keeping)[0].what, "the program is another pass of the step");
  for (Program& program : keeping) program.snapshots = Snapshots::kept;
  EXPECT_EQ(verify(chain, options, keeping)[0].what, "snapshot a is not for this pass to take");
}

TEST(Snapshot, NamesTheRaceWithTheStep) {
  const ChainSpec chain = two_groups(false);
  const Options options{.snapshots = Snapshots::taken, .num_micro_batches = 1};
  std::vector<Program> programs = lower_all(chain, options);
  for (Instruction& instruction : programs[0].instructions) {
    if (instruction.op == Op::snapshot) instruction.waits.clear();
  }
  EXPECT_EQ(verify(chain, options, programs)[0].what, "snapshot a may read state a while step a is using those bytes");
}

// All damage is found, also what happens to do no harm. How much of it does, random interleavings show.
TEST(Snapshot, NoDamageToOneIsMissed) {
  constexpr int kEach = 100, kInterleavings = 60;
  for (const Mutation& mutation : snapshot_mutations()) {
    int found = 0, harmful = 0;
    for (std::uint64_t seed = 0; found < kEach; ++seed) {
      ASSERT_LT(seed, 20000u) << mutation.name << ": never applies";
      const Case random = make_random_case(seed);
      if (random.options.snapshots != Snapshots::taken) continue;
      std::vector<Program> programs = lower_all(random.chain, random.options);
      const Outcome reference = Interpreter(random, programs).run(0);
      Dice dice(seed + 2000000);
      if (!mutation.apply(programs, random, dice)) continue;
      ASSERT_FALSE(verify(random.chain, random.options, programs).empty())
          << "seed " << seed << ", " << mutation.name << ": missed; " << describe(random);
      ++found;
      Interpreter interpreter(random, programs);
      bool is_harmful = false;
      for (int i = 0; i < kInterleavings && !is_harmful; ++i) is_harmful = interpreter.run(i) != reference;
      harmful += is_harmful;
    }
    std::printf("snapshot %-20s found %d of %d, harmful %d\n", std::string(mutation.name).c_str(), found, kEach,
                harmful);
    EXPECT_TRUE(harmful > 0 || mutation.name == "doubled") << mutation.name << ": the damage never shows";
  }
}

// A slice of masters and moments for each trainable parameter, whatever is whole.
TEST(Snapshot, TakesASliceOfTheStateInHostMemory) {
  for (const int ranks : {1, 2, 4}) {
    for (const int row : {0, 1, 2, 3}) {
      for (const bool fp32 : {true, false}) {
        for (const bool offloads : {true, false}) {
          if (ranks == 1 && row > 0) continue;
          ChainSpec chain = make_small_chain(3, false);
          chain.groups[1].trainable = false;
          chain.units[1].gradients.clear();
          std::int64_t trainable = 0;
          for (GroupSpec& group : chain.groups) {
            group.shards_optimizer = row >= 1 && group.trainable;
            group.shards_gradients = row >= 2 && group.trainable;
            group.shards_parameters = row >= 3;
            trainable += group.trainable ? group.numel : 0;
          }
          if (offloads) offload(chain, true, true, false);
          Options options{.world_size = ranks, .num_micro_batches = 4, .compute_element_bytes = fp32 ? 4 : 2};
          options.weights_are_master = fp32;
          options.state_bytes_per_element = fp32 ? 8 : 12;
          const Program without = proven(chain, options);
          options.snapshots = Snapshots::taken;
          const Program with = proven(chain, options);
          EXPECT_EQ(with.host_persistent_bytes - without.host_persistent_bytes, trainable / ranks * 12)
              << ranks << " ranks, row " << row;
          EXPECT_EQ(with.persistent_bytes, without.persistent_bytes);
        }
      }
    }
  }
}

// Priced by its bytes on the link to the host, and beside the forward it costs a step nothing.
TEST(Snapshot, HidesBehindTheForward) {
  ChainSpec chain = two_groups(true);
  chain.units[0].forward_flops = 100, chain.units[0].backward_flops = 200, chain.units[1].backward_flops = 300;
  Options options{.pass = Pass::cycle,
                  .snapshots = Snapshots::kept,
                  .world_size = 2,
                  .num_micro_batches = 2,
                  .state_bytes_per_element = 8};
  const Rates rates{.flops_per_s = 100, .host_copy_bytes_per_s = 256 * 12};
  const auto timeline = [&](Snapshots snapshots) {
    options.snapshots = snapshots;
    return simulate(chain, options, lower_all(chain, options), rates)[0];
  };
  const Timeline kept = timeline(Snapshots::kept), taken = timeline(Snapshots::taken);
  EXPECT_EQ(kept.busy_s[static_cast<int>(Lane::copy)], 0);
  EXPECT_NEAR(taken.busy_s[static_cast<int>(Lane::copy)], 2, 1e-12);  // a second for each group's slice
  EXPECT_EQ(taken.step_s, kept.step_s);
  EXPECT_EQ(taken.exposed_copy_s, 0);
  const std::string drawn = draw_step(chain, lower_all(chain, options)[0], taken, 100);
  EXPECT_NE(drawn.find("K snapshot"), std::string::npos) << drawn;
  EXPECT_NE(drawn.find("  copy "), std::string::npos) << drawn;
}

}  // namespace
}  // namespace trireme::schedule
