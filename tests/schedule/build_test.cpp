#include "schedule/build.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "schedule/chains.h"
#include "schedule/verify.h"

namespace trireme::schedule {
namespace {

using Lines = std::vector<std::string>;

// The issue order in words; `<` names the waits on other lanes.
Lines listing(const Program& program, const ChainSpec& chain) {
  Lines lines;
  for (const Instruction& instruction : program.instructions) {
    std::string line = to_string(instruction, chain);
    for (const int wait : instruction.waits) line += " < " + to_string(program.instructions[wait], chain);
    lines.push_back(line);
  }
  return lines;
}

Lines listing(const ChainSpec& chain, const Options& options, int rank) {
  return listing(lower_all(chain, options)[rank], chain);
}

ChainSpec shard(ChainSpec chain, bool parameters, bool gradients) {
  for (GroupSpec& group : chain.groups) {
    group.shards_parameters = parameters;
    group.shards_gradients = gradients;
    group.shards_optimizer = true;
  }
  return chain;
}

Lines without_waits(const ChainSpec& chain, const Options& options, int rank) {
  Lines lines;
  for (const Instruction& i : build_schedule(chain, options, rank).instructions) lines.push_back(to_string(i, chain));
  return lines;
}

// One rank accumulates each micro-batch's gradients right where they are made, and issues no collective but the local
// count and report.
TEST(BuildSchedule, OneRankAccumulates) {
  const Lines expected = {"count",
                          "forward embed m0",
                          "forward block0 m0",
                          "loss head m0 < count",
                          "accumulate head m0 first",
                          "backward block0 m0",
                          "accumulate block0 m0 first",
                          "backward embed m0",
                          "accumulate embed m0 first",
                          "forward embed m1",
                          "forward block0 m1",
                          "loss head m1",
                          "accumulate head m1",
                          "backward block0 m1",
                          "accumulate block0 m1",
                          "backward embed m1",
                          "accumulate embed m1",
                          "norm",
                          "report < norm",
                          "step embed < report",
                          "step block0",
                          "step head"};
  for (const bool each : {false, true}) {
    const Options options{.num_micro_batches = 2, .reduce_each_micro_batch = each};
    EXPECT_EQ(listing(make_small_chain(1, false), options, 0), expected);
  }
}

// ddp that reduces once: the all-reduce of a group follows its last accumulate, and backward goes on beside it. The
// rank without a micro-batch in the ragged round issues the same collectives in the same order.
TEST(BuildSchedule, AllReducesOnceAStep) {
  const Options options{.world_size = 2, .num_micro_batches = 3};
  const ChainSpec chain = make_small_chain(1, false);
  EXPECT_EQ(listing(chain, options, 0), (Lines{"count",
                                               "forward embed m0",
                                               "forward block0 m0",
                                               "loss head m0 < count",
                                               "accumulate head m0 first",
                                               "backward block0 m0",
                                               "accumulate block0 m0 first",
                                               "backward embed m0",
                                               "accumulate embed m0 first",
                                               "forward embed m2",
                                               "forward block0 m2",
                                               "loss head m2",
                                               "accumulate head m2",
                                               "all_reduce head < accumulate head m2",
                                               "backward block0 m2",
                                               "accumulate block0 m2",
                                               "all_reduce block0 < accumulate block0 m2",
                                               "backward embed m2",
                                               "accumulate embed m2",
                                               "all_reduce embed < accumulate embed m2",
                                               "norm < all_reduce embed",
                                               "report < norm",
                                               "step embed < report",
                                               "step block0",
                                               "step head"}));
  EXPECT_EQ(listing(chain, options, 1),
            (Lines{"count", "forward embed m1", "forward block0 m1", "loss head m1 < count", "accumulate head m1 first",
                   "backward block0 m1", "accumulate block0 m1 first", "backward embed m1", "accumulate embed m1 first",
                   "all_reduce head < accumulate head m1 first", "all_reduce block0 < accumulate block0 m1 first",
                   "all_reduce embed < accumulate embed m1 first", "norm < all_reduce embed", "report < norm",
                   "step embed < report", "step block0", "step head"}));
}

// zero2's order: every micro-batch's slots are added in rank order at once, and the sums are gathered after the last
// round. A tied group is reduced once a micro-batch, after the embedding's contribution was added to the head's.
TEST(BuildSchedule, ReducesEachMicroBatchAndTiedGroupsOnce) {
  const Options options{.world_size = 2, .num_micro_batches = 3, .reduce_each_micro_batch = true};
  const ChainSpec chain = make_small_chain(1, true);
  EXPECT_EQ(without_waits(chain, options, 0), (Lines{"count",
                                                     "forward embed m0",
                                                     "forward block0 m0",
                                                     "loss head m0",
                                                     "reduce_scatter head round 0 of 2 first",
                                                     "backward block0 m0",
                                                     "reduce_scatter block0 round 0 of 2 first",
                                                     "backward embed m0 adds embed",
                                                     "reduce_scatter embed round 0 of 2 first",
                                                     "forward embed m2",
                                                     "forward block0 m2",
                                                     "loss head m2",
                                                     "reduce_scatter head round 1 of 1",
                                                     "all_gather head",
                                                     "backward block0 m2",
                                                     "reduce_scatter block0 round 1 of 1",
                                                     "all_gather block0",
                                                     "backward embed m2 adds embed",
                                                     "reduce_scatter embed round 1 of 1",
                                                     "all_gather embed",
                                                     "norm",
                                                     "report",
                                                     "step embed",
                                                     "step block0",
                                                     "step head"}));
  EXPECT_EQ(without_waits(chain, options, 1), (Lines{"count",
                                                     "forward embed m1",
                                                     "forward block0 m1",
                                                     "loss head m1",
                                                     "reduce_scatter head round 0 of 2 first",
                                                     "backward block0 m1",
                                                     "reduce_scatter block0 round 0 of 2 first",
                                                     "backward embed m1 adds embed",
                                                     "reduce_scatter embed round 0 of 2 first",
                                                     "reduce_scatter head round 1 of 1",
                                                     "all_gather head",
                                                     "reduce_scatter block0 round 1 of 1",
                                                     "all_gather block0",
                                                     "reduce_scatter embed round 1 of 1",
                                                     "all_gather embed",
                                                     "norm",
                                                     "report",
                                                     "step embed",
                                                     "step block0",
                                                     "step head"}));
}

// zero3: a group is gathered while the unit before it works, and released after its own; the last block's stays for its
// backward, which needs nothing else first. The head's is the only one between. Each rank updates its slices.
TEST(BuildSchedule, GathersAheadAndReleases) {
  const ChainSpec chain = shard(make_small_chain(2, false), true, true);
  const Options options{.world_size = 2, .num_micro_batches = 2, .gather_ahead = 1};
  EXPECT_EQ(without_waits(chain, options, 0), (Lines{"count",
                                                     "gather embed",
                                                     "gather block0",
                                                     "forward embed m0",
                                                     "release embed",
                                                     "gather block1",
                                                     "forward block0 m0",
                                                     "release block0",
                                                     "gather head",
                                                     "forward block1 m0",
                                                     "release block1",
                                                     "gather block1",
                                                     "loss head m0",
                                                     "release head",
                                                     "reduce_scatter head round 0 of 2 first",
                                                     "gather block0",
                                                     "backward block1 m0",
                                                     "release block1",
                                                     "reduce_scatter block1 round 0 of 2 first",
                                                     "gather embed",
                                                     "backward block0 m0",
                                                     "release block0",
                                                     "reduce_scatter block0 round 0 of 2 first",
                                                     "backward embed m0",
                                                     "release embed",
                                                     "reduce_scatter embed round 0 of 2 first",
                                                     "norm",
                                                     "report",
                                                     "step embed",
                                                     "step block0",
                                                     "step block1",
                                                     "step head"}));
  Options near = options;
  near.reuse_distance = 24577;  // more than the head's elements, which are all that come between
  const Lines lines = without_waits(chain, near, 0);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), "gather block1"), 1) << "it stays for its backward";
  EXPECT_EQ(std::count(lines.begin(), lines.end(), "gather block0"), 2);
}

// Between rounds the embedding's backward and forward would hide nothing of block 0's gather: it stays.
TEST(BuildSchedule, CountsNoUnitThatHidesNothing) {
  ChainSpec chain = shard(make_small_chain(2, false), true, true);
  const Options options{.world_size = 2, .num_micro_batches = 4, .gather_ahead = 1};
  const auto gathers = [&] {
    const Lines lines = without_waits(chain, options, 0);
    return std::count(lines.begin(), lines.end(), "gather block0");
  };
  EXPECT_EQ(gathers(), 4) << "nothing is known of operations";
  for (UnitSpec& unit : chain.units) unit.forward_flops = unit.backward_flops = unit.name == "embed" ? 1e3 : 1e6;
  EXPECT_EQ(gathers(), 3);
}

// A rank without work in the last round gathers and releases all the same: the others need its slices.
TEST(BuildSchedule, RanksWithoutWorkGatherToo) {
  const ChainSpec chain = shard(make_small_chain(1, true), true, true);
  const Options options{.world_size = 2, .num_micro_batches = 3, .gather_ahead = 2};
  const auto collectives = [&](int rank) {
    Lines lines;
    for (const std::string& line : without_waits(chain, options, rank)) {
      if (line.find(" m") == std::string::npos) lines.push_back(line);
    }
    return lines;
  };
  EXPECT_EQ(collectives(0), collectives(1));
}

// shard_grad_op: each group is gathered once a step, whatever the number of micro-batches.
TEST(BuildSchedule, GathersOnceAStepWhereAsked) {
  const ChainSpec chain = shard(make_small_chain(2, true), true, true);
  const Lines lines = without_waits(chain, {.world_size = 2, .num_micro_batches = 6, .gather_once = true}, 1);
  for (const GroupSpec& group : chain.groups) {
    EXPECT_EQ(std::count(lines.begin(), lines.end(), "gather " + group.name), 1);
    EXPECT_EQ(std::count(lines.begin(), lines.end(), "release " + group.name), 1);
  }
}

// zero1 adds on each rank and hands the sums over once; zero2 hands over each micro-batch's. Both gather the weights
// after their step, each group beside the next one's.
TEST(BuildSchedule, GathersWholeWeightsAfterTheirStep) {
  const Options options{.world_size = 2, .num_micro_batches = 2};
  const Lines end{"norm",        "report",        "step embed", "gather embed",
                  "step block0", "gather block0", "step head",  "gather head"};
  for (const bool gradients : {false, true}) {
    const ChainSpec chain = shard(make_small_chain(1, false), false, gradients);
    const Lines lines = without_waits(chain, options, 1);
    EXPECT_EQ(Lines(lines.end() - std::ssize(end), lines.end()), end);
    EXPECT_EQ(std::count(lines.begin(), lines.end(), "scatter_sums head"), gradients ? 0 : 1);
    EXPECT_EQ(std::count(lines.begin(), lines.end(), "reduce_scatter head round 0 of 2 first"), gradients ? 1 : 0);
  }
}

// Each pending STEP comes right before the weights are needed, and the gather behind it hides behind the forward.
TEST(BuildSchedule, PendingStepsRunIntoTheForward) {
  const ChainSpec zero1 = shard(make_small_chain(1, false), false, false);
  Options options{.pass = Pass::cycle, .world_size = 2, .num_micro_batches = 2, .gather_ahead = 1};
  Lines lines = without_waits(zero1, options, 0);
  const Lines head = {
      "count",     "step embed",  "gather embed",      "step block0", "gather block0", "forward embed m0",
      "step head", "gather head", "forward block0 m0", "loss head m0"};
  ASSERT_GE(lines.size(), head.size());
  EXPECT_EQ(Lines(lines.begin(), lines.begin() + 10), head);
  EXPECT_EQ(lines.back(), "report");
  options.gather_ahead = 0;
  const ChainSpec zero3 = shard(make_small_chain(1, false), true, true);
  lines = without_waits(zero3, options, 0);
  EXPECT_EQ(Lines(lines.begin(), lines.begin() + 5),
            (Lines{"count", "step embed", "gather embed", "forward embed m0", "release embed"}));
  options.pass = Pass::drain;
  EXPECT_EQ(without_waits(zero3, options, 1), (Lines{"step embed", "step block0", "step head"}));
  options.pass = Pass::opening;
  lines = without_waits(zero1, options, 0);
  EXPECT_EQ(lines.front(), "count");
  EXPECT_EQ(lines.back(), "report");
  for (const std::string& line : lines) EXPECT_FALSE(line.starts_with("step")) << line;
}

// Slices in two replicas: within each micro-batch among the ranks of one, after the last one over both.
TEST(BuildSchedule, SumsReplicasOnceAStep) {
  const ChainSpec chain = shard(make_small_chain(1, false), true, true);
  const Options options{.world_size = 4, .replicas = 2, .num_micro_batches = 5};
  for (const int rank : {0, 1, 2, 3}) {
    const Lines lines = without_waits(chain, options, rank);
    EXPECT_EQ(std::count(lines.begin(), lines.end(), "sum_replicas head"), 1);
    EXPECT_EQ(std::count(lines.begin(), lines.end(), "reduce_scatter head round 0 of 2 first"), 1);
    const std::string last = "reduce_scatter head round 1 of " + std::string(rank < 2 ? "1" : "0");
    EXPECT_EQ(std::count(lines.begin(), lines.end(), last), 1) << rank;
  }
}

// The executor finds buffers by role: the input is among the reads, the output among the writes.
TEST(BuildSchedule, FindsBuffersByRole) {
  const ChainSpec chain = make_small_chain(2, true);
  const Program program = build_schedule(chain, {.num_micro_batches = 1}, 0);
  const auto instruction = [&](Op op, int unit) -> const Instruction& {
    for (const Instruction& i : program.instructions) {
      if (i.op == op && i.unit == unit) return i;
    }
    throw std::logic_error("no such instruction");
  };
  const auto name = [&](const std::vector<int>& list, BufferKind kind, int group = -1) -> std::string {
    const int id = find(program, list, kind, group);
    return id < 0 ? "none" : to_string(program.buffers[id], chain);
  };
  const Instruction& forward = instruction(Op::forward, 1);
  EXPECT_EQ(name(forward.reads, BufferKind::activation), "activation embed m0");
  EXPECT_EQ(name(forward.writes, BufferKind::activation), "activation block0 m0");
  EXPECT_EQ(name(forward.writes, BufferKind::saved), "saved block0 m0");
  EXPECT_EQ(name(instruction(Op::forward, 0).reads, BufferKind::activation), "none");
  const Instruction& loss = instruction(Op::loss, 3);
  EXPECT_EQ(name(loss.writes, BufferKind::boundary_gradient), "boundary_gradient block1 m0");
  EXPECT_EQ(name(loss.writes, BufferKind::gradient_slot, 0), "gradient_slot embed m0");
  EXPECT_EQ(name(loss.writes, BufferKind::losses), "losses m0");
  const Instruction& backward = instruction(Op::backward, 0);
  EXPECT_EQ(name(backward.reads, BufferKind::boundary_gradient), "boundary_gradient embed m0");
  EXPECT_EQ(name(backward.writes, BufferKind::boundary_gradient), "none");
  EXPECT_EQ(find(program, backward.writes, BufferKind::gradient_slot, 0),
            find(program, loss.writes, BufferKind::gradient_slot, 0));
}

// A frozen group is read and nothing else.
TEST(BuildSchedule, LeavesFrozenGroupsAlone) {
  ChainSpec chain = make_small_chain(1, false);
  chain.groups[1].trainable = false;
  chain.units[1].gradients.clear();
  const Options options{.world_size = 2, .num_micro_batches = 2};
  for (const std::string& line : listing(chain, options, 0)) {
    const bool computes = line.starts_with("forward") || line.starts_with("backward");
    EXPECT_TRUE(computes || line.find("block0") == std::string::npos) << line;
  }
  for (const Buffer& buffer : build_schedule(chain, options, 0).buffers) {
    EXPECT_TRUE(buffer.group != 1 || buffer.kind == BufferKind::weights) << to_string(buffer, chain);
  }
}

// Below the first unit that is trained nothing has a backward, so nothing is kept for one; with the head alone there is
// none at all.
TEST(BuildSchedule, EndsTheBackwardAtTheFirstUnitThatIsTrained) {
  ChainSpec chain = make_small_chain(2, false);
  const Options options{.world_size = 2, .num_micro_batches = 2};
  const auto freeze = [&](int unit) {
    chain.groups[unit].trainable = false;
    chain.units[unit].gradients.clear();
  };
  freeze(0), freeze(1);
  EXPECT_EQ(without_waits(chain, options, 0),
            (Lines{"count", "forward embed m0", "forward block0 m0", "forward block1 m0", "loss head m0",
                   "accumulate head m0 first", "all_reduce head", "backward block1 m0", "accumulate block1 m0 first",
                   "all_reduce block1", "norm", "report", "step block1", "step head"}));
  const auto kept = [&] {
    Lines lines;
    for (const Buffer& buffer : build_schedule(chain, options, 0).buffers) {
      if (buffer.kind == BufferKind::saved) lines.push_back(to_string(buffer, chain));
    }
    return lines;
  };
  EXPECT_EQ(kept(), Lines{"saved block1 m0"});
  chain.units[1].recompute = true;
  EXPECT_EQ(kept(), Lines{"saved block1 m0"}) << "nothing is computed again either";
  freeze(2);
  EXPECT_EQ(kept(), Lines{});
  EXPECT_TRUE(verify(chain, options, lower_all(chain, options)).empty());
}

}  // namespace
}  // namespace trireme::schedule
