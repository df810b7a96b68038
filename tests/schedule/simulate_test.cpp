#include "schedule/simulate.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "schedule/chains.h"

namespace trireme::schedule {
namespace {

// Memory and optimizer cost nothing, a unit its operations / 100, a collective 0.5 s a phase and 1 s for 1,024 bytes.
Rates round_rates() {
  constexpr double kFree = std::numeric_limits<double>::infinity();
  return {.flops_per_s = 100,
          .bytes_moved_per_s = kFree,
          .optimizer_bytes_per_s = kFree,
          .collective_latency_s = 0.5,
          .collective_bytes_per_s = 1024};
}

// A unit of 1 s forward and 2 s backward, a head of 3 s; 512 elements each: slices of 1,024 bytes on two ranks.
ChainSpec two_units() {
  ChainSpec chain;
  chain.groups = {{"a", 512, true}, {"h", 512, true}};
  chain.units = {{"a", {0}, {0}, 256, 256}, {"head", {1}, {1}}};
  chain.units[0].forward_flops = 100;
  chain.units[0].backward_flops = 200;
  chain.units[1].backward_flops = 300;
  return chain;
}

// "forward a" and the like, without what follows the name.
std::map<std::string, std::vector<Span>> by_name(const Program& program, const Timeline& timeline,
                                                 const ChainSpec& chain) {
  std::map<std::string, std::vector<Span>> found;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const std::string text = to_string(program.instructions[i], chain);
    found[text.substr(0, text.find(' ', text.find(' ') + 1))].push_back(timeline.spans[i]);
  }
  return found;
}

void expect_span(const std::map<std::string, std::vector<Span>>& spans, const std::string& name, std::size_t place,
                 double start, double end) {
  const auto found = spans.find(name);
  ASSERT_NE(found, spans.end()) << name;
  ASSERT_LT(place, found->second.size()) << name;
  EXPECT_EQ(found->second[place].start, start) << name;
  EXPECT_EQ(found->second[place].end, end) << name;
}

constexpr double kCount = 0.5 + 8.0 / 1024;       // to one other rank
constexpr double kReport = 0.5 + 5 * 8.0 / 1024;  // the loss of one round and four words more

TEST(Simulate, OneRankTakesTheSumOfItsWork) {
  const ChainSpec chain = two_units();
  const Options options{.num_micro_batches = 3};
  const std::vector<Program> programs = lower_all(chain, options);
  const Timeline timeline = simulate(chain, options, programs, round_rates())[0];
  EXPECT_EQ(timeline.step_s, 18);
  EXPECT_EQ(timeline.busy_s[static_cast<int>(Lane::compute)], 18);
  EXPECT_EQ(timeline.communication_s(), 0);
  EXPECT_EQ(timeline.exposed_s, 0);
  EXPECT_EQ(timeline.idle_s, 0);
}

// The head's all-reduce hides behind the backward of the unit, whose own comes after everything.
TEST(Simulate, DdpHidesWhatTheBackwardCovers) {
  const ChainSpec chain = two_units();
  const Options options{.world_size = 2, .num_micro_batches = 2};
  const std::vector<Program> programs = lower_all(chain, options);
  for (std::size_t rank : {0, 1}) {
    const Timeline timeline = simulate(chain, options, programs, round_rates())[rank];
    const auto spans = by_name(programs[rank], timeline, chain);
    expect_span(spans, "count", 0, 0, kCount);
    expect_span(spans, "forward a", 0, 0, 1);
    expect_span(spans, "loss head", 0, 1, 4);
    expect_span(spans, "all_reduce h", 0, 4, 7);
    expect_span(spans, "backward a", 0, 4, 6);
    expect_span(spans, "all_reduce a", 0, 7, 10);
    expect_span(spans, "report", 0, 10, 10 + kReport);
    EXPECT_EQ(timeline.step_s, 10 + kReport);
    EXPECT_EQ(timeline.communication_s(), kCount + 6 + kReport);
    EXPECT_EQ(timeline.exposed_s, 4 + kReport);
    EXPECT_EQ(timeline.idle_s, 0);
    EXPECT_EQ(timeline.waiting_s, 4 + kReport);
  }
}

// Products at the rate of their size and type, attention at its own; gathers and reductions as they are under load.
TEST(Simulate, TakesTheRateOfEachKindOfWork) {
  ChainSpec chain = two_units();
  chain.units[0].forward_attention_flops = 40;  // of 100
  chain.units[0].smallest_side = 300;
  const Options options{.world_size = 2, .num_micro_batches = 2};
  const std::vector<Program> programs = lower_all(chain, options);
  Rates rates = round_rates();
  rates.fp32 = {.small = 1, .medium = 30, .large = 1, .attention = 10};
  rates.loaded_collective_bytes_per_s = 2048;
  const Timeline timeline = simulate(chain, options, programs, rates)[0];
  const auto spans = by_name(programs[0], timeline, chain);
  expect_span(spans, "count", 0, 0, kCount);
  expect_span(spans, "forward a", 0, 0, 60.0 / 30 + 40.0 / 10);
  const Span reduce = spans.at("all_reduce h").front();
  EXPECT_EQ(reduce.length(), 2 * 0.5 + 2 * 0.5);
}

// A pause before an instruction that has all it needs is outside; one while a collective is under way is a wait for it.
TEST(Simulate, OutsideIsWhereTheComputeLaneCouldWork) {
  const ChainSpec chain = two_units();
  const Options options{.world_size = 2, .num_micro_batches = 2};
  const std::vector<Program> programs = lower_all(chain, options);
  const Timeline planned = simulate(chain, options, programs, round_rates())[0];
  EXPECT_EQ(planned.outside_s, 0);
  const auto paused_at = [&](double time) {
    std::vector<Span> spans = planned.spans;
    for (Span& span : spans) {
      if (span.start < time) continue;
      span.start += 0.25, span.end += 0.25;
    }
    return summarize(programs[0], spans);
  };
  for (const double time : {1.0, 4.0}) {  // LOSS; BACKWARD and the all-reduce beside it
    EXPECT_EQ(paused_at(time).outside_s, 0.25) << time;
    EXPECT_EQ(paused_at(time).waiting_s, planned.waiting_s) << time;
  }
  EXPECT_EQ(paused_at(7.0).outside_s, 0);  // the second all-reduce
  EXPECT_EQ(paused_at(7.0).waiting_s, planned.waiting_s + 0.25);
}

// Whatever the strategy: work, waits and nothing else.
TEST(Simulate, ThePredictedComputeLaneWorksOrWaits) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const Case random = make_random_case(seed);
    const std::vector<Program> programs = lower_all(random.chain, random.options);
    for (const Timeline& timeline : simulate(random.chain, random.options, programs, round_rates())) {
      const double compute = timeline.busy_s[static_cast<int>(Lane::compute)];
      EXPECT_NEAR(compute + timeline.waiting_s, timeline.step_s, 1e-9 * timeline.step_s) << describe(random);
      EXPECT_LE(timeline.outside_s, 1e-9 * timeline.step_s) << describe(random);
    }
  }
}

// Weights are gathered one unit ahead; the first gather has nothing to hide behind.
TEST(Simulate, ShardedWeightsAreWaitedForWhereNothingRunsBefore) {
  ChainSpec chain = two_units();
  for (GroupSpec& group : chain.groups) {
    group.shards_parameters = group.shards_gradients = group.shards_optimizer = true;
  }
  const Options options{.world_size = 2, .num_micro_batches = 2};
  const std::vector<Program> programs = lower_all(chain, options);
  const Timeline timeline = simulate(chain, options, programs, round_rates())[0];
  const auto spans = by_name(programs[0], timeline, chain);
  expect_span(spans, "gather a", 0, kCount, kCount + 1.5);
  expect_span(spans, "forward a", 0, kCount + 1.5, kCount + 2.5);
  expect_span(spans, "gather h", 0, kCount + 1.5, kCount + 3);
  expect_span(spans, "loss head", 0, kCount + 3, kCount + 6);
  expect_span(spans, "gather a", 1, kCount + 3, kCount + 4.5);
  expect_span(spans, "reduce_scatter h", 0, kCount + 6, kCount + 7.5);
  expect_span(spans, "backward a", 0, kCount + 6, kCount + 8);
  expect_span(spans, "reduce_scatter a", 0, kCount + 8, kCount + 9.5);
  EXPECT_EQ(timeline.step_s, kCount + 9.5 + kReport);
  // Before the first unit, between the two, and after the last: the rest is hidden.
  EXPECT_EQ(timeline.exposed_s, kCount + 1.5 + 0.5 + 1.5 + kReport);
}

// Of three micro-batches the second rank has one: it waits for the first rank's second round before it may reduce.
TEST(Simulate, ARankWithoutWorkInTheLastRoundWaitsForTheOthers) {
  const ChainSpec chain = two_units();
  const Options options{.world_size = 2, .num_micro_batches = 3};
  const std::vector<Program> programs = lower_all(chain, options);
  const std::vector<Timeline> timelines = simulate(chain, options, programs, round_rates());
  const double report = 0.5 + 6 * 8.0 / 1024;
  for (std::size_t rank : {0, 1}) {
    const auto spans = by_name(programs[rank], timelines[rank], chain);
    expect_span(spans, "all_reduce h", 0, 10, 13);
    expect_span(spans, "all_reduce a", 0, 13, 16);
    EXPECT_EQ(timelines[rank].step_s, 16 + report);
  }
  EXPECT_EQ(timelines[0].idle_s, 0);
  EXPECT_EQ(timelines[1].idle_s, 4);
  EXPECT_EQ(timelines[1].exposed_s, 6 + report);
  const Timeline alone = simulate(chain, options, std::span(programs).subspan(1), round_rates())[0];
  EXPECT_EQ(alone.idle_s, 0);
}

// Bytes of the busiest rank, as comm/collectives.h sends them.
TEST(Cost, WireBytesAreTheSlicesThatARankSendsToTheOthers) {
  ChainSpec chain;
  chain.groups = {{"g", 4096, true}};
  Options options{.world_size = 4, .num_micro_batches = 8, .compute_element_bytes = 2, .wire_element_bytes = 2};
  const auto bytes = [&](Op op, ReduceKind kind, Scope scope, int participants) {
    Instruction instruction{.op = op, .lane = Lane::reduce, .group = 0, .reduce = kind, .scope = scope};
    instruction.participants = participants;
    return wire_bytes(chain, options, instruction);
  };
  EXPECT_EQ(bytes(Op::count, ReduceKind::none, Scope::world, 4), 3 * 8);
  EXPECT_EQ(bytes(Op::report, ReduceKind::none, Scope::world, 4), 3 * (2 + 4) * 8);
  EXPECT_EQ(bytes(Op::gather, ReduceKind::none, Scope::shards, 4), 3 * 1024 * 2);
  EXPECT_EQ(bytes(Op::reduce, ReduceKind::reduce_scatter, Scope::shards, 4), 3 * 1024 * 2);
  EXPECT_EQ(bytes(Op::reduce, ReduceKind::reduce_scatter, Scope::shards, 1), 3 * 1024 * 2);
  EXPECT_EQ(bytes(Op::reduce, ReduceKind::reduce_scatter, Scope::shards, 0), 0);
  EXPECT_EQ(bytes(Op::reduce, ReduceKind::scatter_sums, Scope::shards, 4), 3 * 1024 * 4);
  EXPECT_EQ(bytes(Op::reduce, ReduceKind::all_gather, Scope::world, 4), 3 * 1024 * 4);
  EXPECT_EQ(bytes(Op::reduce, ReduceKind::all_reduce, Scope::world, 4), 2 * 3 * 1024 * 4);
  options.compute_element_bytes = 4;  // and rounded for the wire; sums in two bytes
  options.accumulator_element_bytes = 2;
  EXPECT_EQ(bytes(Op::gather, ReduceKind::none, Scope::shards, 4), 3 * 1024 * 4);
  EXPECT_EQ(bytes(Op::reduce, ReduceKind::reduce_scatter, Scope::shards, 4), 3 * 1024 * 2);
  EXPECT_EQ(bytes(Op::reduce, ReduceKind::all_reduce, Scope::world, 4), 2 * 3 * 1024 * 2);
  options = {.world_size = 4, .replicas = 2, .num_micro_batches = 8, .compute_element_bytes = 2};
  EXPECT_EQ(bytes(Op::gather, ReduceKind::none, Scope::shards, 2), 2048 * 2);
  EXPECT_EQ(bytes(Op::reduce, ReduceKind::sum_replicas, Scope::replicas, 2), 2 * 1024 * 4);
}

// A slice of the optimizer costs a slice; a unit the longer of its operations and its bytes, or on a device both.
TEST(Cost, WorkIsPricedByWhatThisRankTouches) {
  ChainSpec chain = two_units();
  chain.units[0].forward_bytes_moved = 5000;
  Options options{.world_size = 2, .num_micro_batches = 2, .state_bytes_per_element = 8};
  Rates rates{.flops_per_s = 100, .bytes_moved_per_s = 1000, .optimizer_bytes_per_s = 2};
  const auto price = [&](Op op, bool first) {
    const std::vector<Program> programs = lower_all(chain, options);
    for (const Instruction& instruction : programs[0].instructions) {
      if (instruction.op == op && instruction.first == first) {
        return seconds(chain, options, programs[0], instruction, rates);
      }
    }
    return -1.0;
  };
  EXPECT_EQ(price(Op::forward, false), 5);  // 5,000 bytes, not 100 operations
  EXPECT_EQ(price(Op::backward, false), 2);
  rates.of_device = true;
  EXPECT_EQ(price(Op::forward, false), 6);
  rates.of_device = false;
  EXPECT_EQ(price(Op::accumulate, true), 512 * (4 + 4) / 1000.0);
  EXPECT_EQ(price(Op::norm, false), 1024 * 4 / 1000.0);
  EXPECT_EQ(price(Op::step, false), 512 * (4 + 2 * 8 + 2 * 4) / 2.0);
  for (GroupSpec& group : chain.groups) group.shards_optimizer = true;
  EXPECT_EQ(price(Op::accumulate, true), 512 * (4 + 4) / 1000.0);
  EXPECT_EQ(price(Op::norm, false), 512 * 4 / 1000.0);
  EXPECT_EQ(price(Op::step, false), 256 * (4 + 2 * 8 + 2 * 4) / 2.0);
  rates.host_optimizer_bytes_per_s = 0.5;
  EXPECT_EQ(price(Op::step, false), 256 * (4 + 2 * 8 + 2 * 4) / 2.0);
  offload(chain, true, false, false);
  EXPECT_EQ(price(Op::step, false), 256 * (4 + 2 * (8 + 4) + 4) / 0.5);  // with a master apart
}

}  // namespace
}  // namespace trireme::schedule
