// The verifier against a referee that shares no code with it: damaged programs, run in random interleavings.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "schedule/interpreter.h"
#include "schedule/mutations.h"
#include "schedule/rank_classes.h"
#include "schedule/verify.h"

namespace trireme::schedule {
namespace {

constexpr int kInterleavings = 1000;

// TRIREME_MUTATIONS=N asks for a longer search than the test suite has time for.
int wanted_mutations() {
  const char* wanted = std::getenv("TRIREME_MUTATIONS");
  return wanted ? std::max(200, std::atoi(wanted)) : 1000;
}

std::string text(const std::vector<Finding>& findings) {
  std::string all;
  for (const Finding& finding : findings) {
    all += "\n  rank " + std::to_string(finding.rank) + ", instruction " + std::to_string(finding.instruction) + ": " +
           finding.what;
  }
  return all;
}

// Programs as they are built have no finding, and every interleaving of them gives the same end.
TEST(Proof, FlagsNoUnmutatedProgram) {
  int programs = 0;
  for (std::uint64_t seed = 0; programs < 1500; ++seed) {
    const Case random = make_random_case(seed);
    const std::vector<Program> lowered = lower_all(random.chain, random.options);
    const std::vector<Finding> findings = verify(random.chain, random.options, lowered);
    ASSERT_TRUE(findings.empty()) << "seed " << seed << ": " << describe(random) << text(findings);
    programs += static_cast<int>(lowered.size());
    Interpreter interpreter(random, lowered);
    const Outcome reference = interpreter.run(0);
    ASSERT_EQ(reference.failure, "") << "seed " << seed << ": " << describe(random);
    ASSERT_TRUE(reference.snapshots_hold) << "seed " << seed << ": " << describe(random);
    for (int other = 1; other < 4; ++other) ASSERT_EQ(interpreter.run(other), reference) << "seed " << seed;
    ASSERT_EQ(std::count(reference.common.begin(), reference.common.end(), reference.common[0]),
              random.options.world_size)
        << "seed " << seed << ": ranks end unequal";
    for (int rank = 0; rank < random.options.world_size; ++rank) {
      ASSERT_EQ(reference.end[rank], reference.end[random.options.slice_of(rank)])
          << "seed " << seed << ": replicas end unequal";
    }
  }
}

// Nothing but memory is lost by a release that is not there, so no interleaving shows it.
TEST(Proof, FindsEveryMissingRelease) {
  int found = 0;
  for (std::uint64_t seed = 0; found < 300; ++seed) {
    const Case random = make_random_case(seed);
    const std::vector<Program> lowered = lower_all(random.chain, random.options);
    for (std::size_t at = 0; at < lowered[0].instructions.size(); ++at) {
      if (lowered[0].instructions[at].op != Op::release) continue;
      std::vector<Program> programs = lowered;
      auto& instructions = programs[0].instructions;
      instructions.erase(instructions.begin() + static_cast<std::ptrdiff_t>(at));
      programs[0] = lower(programs[0], random.options);
      const auto findings = verify(random.chain, random.options, programs);
      ASSERT_FALSE(findings.empty()) << "seed " << seed << ", instruction " << at << ": " << describe(random);
      const std::string& what = findings[0].what;
      const bool names_it = what.find("gathered") != std::string::npos ||
                            what.find("while the weights are there") != std::string::npos ||
                            what.starts_with("release ");
      EXPECT_TRUE(names_it) << findings[0].what;
      ++found;
    }
  }
}

// What representative_ranks() says of classes: with micro-batches numbered by their round, programs are equal.
TEST(Proof, ProgramsOfAClassDifferInMicroBatchesOnly) {
  const auto listing = [](const Program& program, const Case& random) {
    std::string text;
    const int ranks = random.options.world_size;
    for (Buffer buffer : program.buffers) {
      if (buffer.micro_batch >= 0) buffer.micro_batch /= ranks;
      text += to_string(buffer, random.chain) + " " + std::to_string(buffer.bytes) + " at " +
              std::to_string(buffer.offset) + "\n";
    }
    for (Instruction instruction : program.instructions) {
      if (instruction.micro_batch >= 0) instruction.micro_batch /= ranks;
      text += to_string(instruction, random.chain);
      for (const auto* list : {&instruction.reads, &instruction.writes, &instruction.waits}) {
        text += " |";
        for (const int index : *list) text += " " + std::to_string(index);
      }
      text += "\n";
    }
    return text;
  };
  int several = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const Case random = make_random_case(seed);
    const std::vector<Program> programs = lower_all(random.chain, random.options);
    std::set<std::string> all, representatives;
    for (const Program& program : programs) all.insert(listing(program, random));
    for (const int rank : representative_ranks(random.options)) {
      representatives.insert(listing(programs[rank], random));
    }
    several += representatives.size() > 1;
    ASSERT_EQ(all, representatives) << "seed " << seed << ": " << describe(random);
  }
  EXPECT_GT(several, 50);
}

struct Tally {
  int harmful = 0, found = 0, harmless = 0, harmless_flagged = 0;
};

// Every mutation that any of 1,000 random interleavings shows to change a value, hang or leave its memory is found.
TEST(Proof, FindsEveryHarmfulMutation) {
  const std::vector<Mutation> mutations = all_mutations();
  std::vector<Tally> tallies(mutations.size());
  int harmful = 0;
  for (std::uint64_t seed = 0; harmful < wanted_mutations(); ++seed) {
    const Case random = make_random_case(seed);
    std::vector<Program> programs = lower_all(random.chain, random.options);
    if (programs[0].instructions.size() < 2) continue;  // drains of next to nothing
    const Outcome reference = Interpreter(random, programs).run(0);
    Dice dice(seed + 1000000);
    const std::size_t kind = seed % mutations.size();
    if (!mutations[kind].apply(programs, random, dice)) continue;
    const std::vector<Finding> findings = verify(random.chain, random.options, programs);
    Interpreter interpreter(random, programs);
    bool is_harmful = false;
    for (int i = 0; i < kInterleavings && !is_harmful; ++i) is_harmful = interpreter.run(i) != reference;
    Tally& tally = tallies[kind];
    harmful += is_harmful;
    (is_harmful ? tally.harmful : tally.harmless) += 1;
    if (!findings.empty()) (is_harmful ? tally.found : tally.harmless_flagged) += 1;
    EXPECT_TRUE(!is_harmful || !findings.empty())
        << "seed " << seed << ", " << mutations[kind].name << ": missed; " << describe(random);
  }
  for (std::size_t kind = 0; kind < mutations.size(); ++kind) {
    const Tally& tally = tallies[kind];
    std::printf("%-30s harmful %4d found %4d; harmless %4d flagged %4d\n", std::string(mutations[kind].name).c_str(),
                tally.harmful, tally.found, tally.harmless, tally.harmless_flagged);
    EXPECT_GT(tally.harmful, 0) << mutations[kind].name << ": the damage never shows";
  }
}

}  // namespace
}  // namespace trireme::schedule
