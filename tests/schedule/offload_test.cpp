// What the host tier adds to a schedule: which copies, when, and what they leave free meanwhile.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "schedule/chains.h"
#include "schedule/simulate.h"
#include "schedule/verify.h"

namespace trireme::schedule {
namespace {

using Lines = std::vector<std::string>;

// In words, from the first line that starts so on; `<` names the waits on other lanes.
Lines listing(const ChainSpec& chain, const Program& program, const std::string& from = "") {
  Lines lines;
  bool begun = false;
  for (const Instruction& instruction : program.instructions) {
    std::string line = to_string(instruction, chain);
    begun = begun || line.starts_with(from);
    if (!begun) continue;
    for (const int wait : instruction.waits) line += " < " + to_string(program.instructions[wait], chain);
    lines.push_back(line);
  }
  return lines;
}

int index_of(const ChainSpec& chain, const Program& program, const std::string& name, int from = 0) {
  for (int i = from; i < static_cast<int>(program.instructions.size()); ++i) {
    if (to_string(program.instructions[i], chain) == name) return i;
  }
  ADD_FAILURE() << "no " << name;
  return 0;
}

ChainSpec shard(ChainSpec chain) {
  for (GroupSpec& group : chain.groups) {
    group.shards_parameters = group.shards_gradients = group.shards_optimizer = true;
  }
  return chain;
}

// Sums go as soon as they are there; updates wait for the report, and each one's weights are fetched beside nothing
// else than the next group's waiting.
TEST(OffloadOfState, CopiesSumsDuringTheBackwardAndUpdatesAtTheEnd) {
  ChainSpec chain = make_small_chain(1, false);
  offload(chain, true, false, false);
  const Options options{.world_size = 2, .num_micro_batches = 2};
  EXPECT_EQ(listing(chain, lower_all(chain, options)[0], "accumulate head"),
            (Lines{"accumulate head m0 first", "all_reduce head < accumulate head m0 first",
                   "offload head < all_reduce head", "backward block0 m0", "accumulate block0 m0 first",
                   "all_reduce block0 < accumulate block0 m0 first", "offload block0 < all_reduce block0",
                   "backward embed m0", "accumulate embed m0 first", "all_reduce embed < accumulate embed m0 first",
                   "offload embed < all_reduce embed", "norm < all_reduce embed", "report < norm",
                   "step embed < report", "fetch embed", "step block0", "fetch block0", "step head", "fetch head"}));
}

// Where nothing waits for the norm a group is updated during the backward, and its weights are back before it ends.
TEST(OffloadOfState, UpdatesDuringTheBackwardWhereNothingWaitsForTheNorm) {
  ChainSpec chain = make_small_chain(1, false);
  for (GroupSpec& group : chain.groups) group.shards_optimizer = true;
  offload(chain, true, false, false);
  const Options options{.world_size = 2, .num_micro_batches = 2, .steps_wait = false};
  const Program program = lower_all(chain, options)[0];
  EXPECT_EQ(listing(chain, program, "scatter_sums head"), (Lines{"scatter_sums head < accumulate head m0 first",
                                                                 "offload head < scatter_sums head",
                                                                 "step head",
                                                                 "fetch head",
                                                                 "backward block0 m0",
                                                                 "accumulate block0 m0 first",
                                                                 "scatter_sums block0 < accumulate block0 m0 first",
                                                                 "offload block0 < scatter_sums block0",
                                                                 "step block0",
                                                                 "fetch block0",
                                                                 "backward embed m0",
                                                                 "accumulate embed m0 first",
                                                                 "scatter_sums embed < accumulate embed m0 first",
                                                                 "offload embed < scatter_sums embed",
                                                                 "step embed",
                                                                 "fetch embed",
                                                                 "norm < scatter_sums embed",
                                                                 "report < norm",
                                                                 "gather embed < fetch embed",
                                                                 "gather block0",
                                                                 "gather head"}));
}

// Left to the next pass an update waits there with its sum on the host, and hides behind the forward of other units.
TEST(OffloadOfState, UpdatesDuringTheNextForwardWhereStepsAreLeftToIt) {
  ChainSpec chain = make_small_chain(2, false);
  for (GroupSpec& group : chain.groups) group.shards_optimizer = true;
  offload(chain, true, false, false);
  const Options options{.pass = Pass::cycle, .world_size = 2, .num_micro_batches = 2};
  const std::vector<Program> programs = lower_all(chain, options);
  EXPECT_TRUE(verify(chain, options, programs).empty());
  const Lines lines = listing(chain, programs[0]);
  EXPECT_EQ(Lines(lines.begin(), lines.begin() + 12),
            (Lines{"count", "step embed", "fetch embed", "gather embed < fetch embed", "step block0", "fetch block0",
                   "gather block0 < fetch block0", "forward embed m0 < gather embed", "step block1", "fetch block1",
                   "gather block1 < fetch block1", "forward block0 m0 < gather block0"}));
  EXPECT_EQ(lines[lines.size() - 3], "offload embed < scatter_sums embed");
}

// Slices go to the device one visit before they are gathered, and the update's result stays on the host.
TEST(OffloadOfWeights, FetchesSlicesAheadOfTheirGather) {
  ChainSpec chain = shard(make_small_chain(1, false));
  offload(chain, true, true, false);
  const Options options{.world_size = 2, .num_micro_batches = 2};
  const Program program = lower_all(chain, options)[0];
  const Lines lines = listing(chain, program);
  EXPECT_EQ(Lines(lines.begin(), lines.begin() + 16),
            (Lines{"count", "fetch embed", "fetch block0", "gather embed < fetch embed", "gather block0 < fetch block0",
                   "fetch head", "forward embed m0 < gather embed", "release embed",
                   "gather head < release embed < fetch head", "fetch block0", "forward block0 m0 < gather block0",
                   "release block0", "gather block0 < fetch block0", "fetch embed < forward embed m0 < gather block0",
                   "loss head m0 < gather head", "release head"}));
  EXPECT_EQ(lines.back(), "step head");
  for (const Buffer& buffer : program.buffers) {
    const bool kept = buffer.kind == BufferKind::weight_slice || buffer.kind == BufferKind::state;
    EXPECT_EQ(buffer.tier == Tier::host, kept || buffer.kind == BufferKind::sum_copy)
        << to_string(buffer, chain) << " on the wrong tier";
  }
}

// On one rank there is nothing to gather: units read what was fetched.
TEST(OffloadOfWeights, StreamsWholeGroupsToOneRank) {
  ChainSpec chain = make_small_chain(1, false);
  offload(chain, true, true, false);
  const Lines lines = listing(chain, lower_all(chain, {.num_micro_batches = 1})[0]);
  EXPECT_EQ(lines, (Lines{"count",
                          "fetch embed",
                          "fetch block0",
                          "forward embed m0 < fetch embed",
                          "release embed",
                          "fetch head < release embed",
                          "forward block0 m0 < fetch block0",
                          "release block0",
                          "fetch block0",
                          "loss head m0 < fetch head < count",
                          "release head",
                          "accumulate head m0 first",
                          "offload head < accumulate head m0 first",
                          "fetch embed",
                          "backward block0 m0 < fetch block0",
                          "release block0",
                          "accumulate block0 m0 first",
                          "offload block0 < accumulate block0 m0 first",
                          "backward embed m0 < fetch embed",
                          "release embed",
                          "accumulate embed m0 first",
                          "offload embed < accumulate embed m0 first",
                          "norm",
                          "report < norm",
                          "step embed < report",
                          "step block0",
                          "step head"}));
}

// A block's input leaves while its forward runs and comes back while the block behind it runs backward; in between its
// bytes on the device are others'.
TEST(OffloadOfInputs, LeavesTheDeviceFreeInBetween) {
  ChainSpec chain = make_small_chain(4, false);
  for (std::size_t unit = 1; unit + 1 < chain.units.size(); ++unit) chain.units[unit].recompute = true;
  const auto lowered = [&](bool inputs) {
    ChainSpec offloaded = chain;
    offload(offloaded, false, false, inputs);
    const Options options{.num_micro_batches = 1};
    const std::vector<Program> programs = lower_all(offloaded, options);
    EXPECT_TRUE(verify(offloaded, options, programs).empty());
    return programs[0];
  };
  const Program program = lowered(true);
  EXPECT_LT(program.arena_bytes, lowered(false).arena_bytes);
  EXPECT_EQ(program.host_arena_bytes, 4 * chain.units[0].output_bytes);
  const int offloads = index_of(chain, program, "offload block1 m0");
  EXPECT_EQ(offloads + 1, index_of(chain, program, "forward block1 m0"));
  const int fetches = index_of(chain, program, "fetch block1 m0");
  EXPECT_EQ(fetches + 1, index_of(chain, program, "recompute block2 m0"));
  // The copy begins when the input is there, and the forward beside it does not wait for it.
  EXPECT_EQ(program.instructions[offloads].waits, std::vector<int>{index_of(chain, program, "forward block0 m0")});
  for (const int wait : program.instructions[offloads + 1].waits) EXPECT_LT(wait, offloads);
  const Buffer& original = program.buffers[program.instructions[offloads].reads[0]];
  int others = 0;
  for (int i = offloads + 2; i < fetches; ++i) {
    for (const int id : program.instructions[i].writes) {
      const Buffer& other = program.buffers[id];
      const bool shares = other.tier == Tier::device && !is_persistent(other.kind) &&
                          other.offset < original.offset + original.bytes &&
                          original.offset < other.offset + other.bytes;
      others += shares;
    }
  }
  EXPECT_GT(others, 0);
}

// Links at work beside the units: 256 bytes a second to and from the host.
TEST(OffloadInTime, CopiesTakeTheLinkAndHideBehindUnits) {
  constexpr double kFree = std::numeric_limits<double>::infinity();
  Rates rates{.flops_per_s = 100, .bytes_moved_per_s = kFree, .optimizer_bytes_per_s = kFree};
  rates.host_copy_bytes_per_s = 1024;
  ChainSpec chain;
  chain.groups = {{"a", 512, true}, {"h", 512, true}};
  chain.units = {{"a", {0}, {0}, 256, 256}, {"head", {1}, {1}}};
  chain.units[0].forward_flops = 100;
  chain.units[0].backward_flops = 300;
  chain.units[1].backward_flops = 300;
  offload(chain, true, false, false);
  for (const bool waits : {true, false}) {
    const Options options{.num_micro_batches = 1, .steps_wait = waits};
    const std::vector<Program> programs = lower_all(chain, options);
    const Timeline timeline = simulate(chain, options, programs, rates)[0];
    const auto span = [&](const std::string& name) { return timeline.spans[index_of(chain, programs[0], name)]; };
    // forward 1, loss 3, backward 3; a copy of 2,048 bytes 2.
    EXPECT_EQ(span("offload h").start, 4);
    EXPECT_EQ(span("offload h").end, 6);
    EXPECT_EQ(span("offload a").start, waits ? 7 : 8);
    EXPECT_EQ(span("fetch h").start, waits ? 11 : 6);
    EXPECT_EQ(timeline.step_s, waits ? 13 : 12);
    EXPECT_EQ(timeline.busy_s[static_cast<int>(Lane::copy)], 8);
    EXPECT_EQ(timeline.exposed_copy_s, waits ? 6 : 5);
    EXPECT_EQ(timeline.exposed_s, 0);
    EXPECT_EQ(timeline.idle_s, 0);
  }
}

// What the verifier says of the faults that copies invite.
TEST(OffloadVerified, NamesTheCopyThatIsMissingOrComesTooEarly) {
  ChainSpec chain = make_small_chain(3, false);
  for (std::size_t unit = 1; unit + 1 < chain.units.size(); ++unit) chain.units[unit].recompute = true;
  offload(chain, true, false, true);
  const Options options{.num_micro_batches = 1};
  const auto finding = [&](const std::string& name, int to) {
    std::vector<Program> programs = lower_all(chain, options);
    auto& instructions = programs[0].instructions;
    const int at = index_of(chain, programs[0], name);
    const Instruction moved = instructions[at];
    instructions.erase(instructions.begin() + at);
    if (to >= 0) instructions.insert(instructions.begin() + to, moved);
    programs[0] = lower(programs[0], options);
    const auto findings = verify(chain, options, programs);
    return findings.empty() ? std::string() : findings[0].what;
  };
  EXPECT_EQ(finding("offload block1 m0", -1), "fetch block1 m0 fetches what was not offloaded");
  EXPECT_EQ(finding("fetch block1 m0", -1), "recompute block1 m0 comes before its input was fetched");
  EXPECT_EQ(finding("fetch block1 m0", 1), "fetch block1 m0 fetches what was not offloaded");
  EXPECT_EQ(finding("offload head", -1), "step head comes before its sum is offloaded");
  EXPECT_EQ(finding("offload head", 1), "offload head does not come once after the sum is complete");
  EXPECT_EQ(finding("fetch head", -1), "fetch head is missing after its step");
  EXPECT_EQ(finding("fetch head", 1), "fetch head does not come once after its step");
}

}  // namespace
}  // namespace trireme::schedule
