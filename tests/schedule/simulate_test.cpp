#include "schedule/simulate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <numeric>

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

// A slice of the optimizer costs a slice; a unit the longer of its operations and its bytes.
TEST(Cost, WorkIsPricedByWhatThisRankTouches) {
  ChainSpec chain = two_units();
  chain.units[0].forward_bytes_moved = 5000;
  Options options{.world_size = 2, .num_micro_batches = 2, .state_bytes_per_element = 8};
  const Rates rates{.flops_per_s = 100, .bytes_moved_per_s = 1000, .optimizer_bytes_per_s = 2};
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
  EXPECT_EQ(price(Op::accumulate, true), 512 * (4 + 4) / 1000.0);
  EXPECT_EQ(price(Op::norm, false), 1024 * 4 / 1000.0);
  EXPECT_EQ(price(Op::step, false), 512 * (4 + 2 * 8 + 2 * 4) / 2.0);
  for (GroupSpec& group : chain.groups) group.shards_optimizer = true;
  EXPECT_EQ(price(Op::accumulate, true), 512 * (4 + 4) / 1000.0);
  EXPECT_EQ(price(Op::norm, false), 512 * 4 / 1000.0);
  EXPECT_EQ(price(Op::step, false), 256 * (4 + 2 * 8 + 2 * 4) / 2.0);
}

// The same step by a clock: at each moment whatever may start does, then time goes on to the next end.
class Clock {
 public:
  Clock(const Case& random, const std::vector<Program>& programs, const Rates& rates)
      : random_(random), programs_(programs), rates_(rates) {
    for (const Program& program : programs) {
      spans_.emplace_back(program.instructions.size(), Span{-1, -1});
      auto& lanes = queues_.emplace_back(kNumLanes);
      for (std::size_t i = 0; i < program.instructions.size(); ++i) {
        lanes[static_cast<int>(program.instructions[i].lane)].push_back(static_cast<int>(i));
      }
      heads_.push_back({});
    }
  }

  std::vector<std::vector<Span>> run() {
    while (true) {
      while (start_something()) {
      }
      double next = std::numeric_limits<double>::infinity();
      for (const auto& spans : spans_) {
        for (const Span& span : spans) {
          if (span.start >= 0 && span.end > now_) next = std::min(next, span.end);
        }
      }
      if (next == std::numeric_limits<double>::infinity()) return spans_;
      now_ = next;
    }
  }

 private:
  bool is_done(std::size_t rank, int instruction) const {
    return spans_[rank][instruction].start >= 0 && spans_[rank][instruction].end <= now_;
  }

  // The instruction of that lane that could start now; -1 for none.
  int candidate(std::size_t rank, int lane) const {
    const std::size_t head = heads_[rank][lane];
    const auto& queue = queues_[rank][lane];
    if (head == queue.size()) return -1;
    if (head > 0 && !is_done(rank, queue[head - 1])) return -1;
    const auto& waits = programs_[rank].instructions[queue[head]].waits;
    const bool ready = std::all_of(waits.begin(), waits.end(), [&](int other) { return is_done(rank, other); });
    return ready ? queue[head] : -1;
  }

  void start(std::size_t rank, int lane, int index) {
    const Program& program = programs_[rank];
    const double length = seconds(random_.chain, random_.options, program, program.instructions[index], rates_);
    spans_[rank][index] = {now_, now_ + length};
    ++heads_[rank][lane];
  }

  bool start_something() {
    bool any = false, all_arrived = true;
    for (std::size_t rank = 0; rank < programs_.size(); ++rank) {
      for (const int lane : {static_cast<int>(Lane::compute), static_cast<int>(Lane::copy)}) {
        const int work = candidate(rank, lane);
        if (work >= 0) start(rank, lane, work), any = true;
      }
      all_arrived = all_arrived && candidate(rank, static_cast<int>(Lane::reduce)) >= 0;
    }
    if (!all_arrived) return any;
    for (std::size_t rank = 0; rank < programs_.size(); ++rank) {
      start(rank, static_cast<int>(Lane::reduce), candidate(rank, static_cast<int>(Lane::reduce)));
    }
    return true;
  }

  const Case& random_;
  const std::vector<Program>& programs_;
  const Rates& rates_;
  std::vector<std::vector<Span>> spans_;
  std::vector<std::vector<std::vector<int>>> queues_;
  std::vector<std::array<std::size_t, kNumLanes>> heads_;
  double now_ = 0;
};

// So that neither computing nor communicating dwarfs the other.
const Rates kBalanced{.flops_per_s = 1e8,
                      .bytes_moved_per_s = 1e8,
                      .optimizer_bytes_per_s = 1e8,
                      .collective_latency_s = 2e-3,
                      .collective_bytes_per_s = 5e6};

TEST(Simulate, EqualsAClockThatStartsWhateverMayStart) {
  double hidden = 0, exposed = 0;
  for (int seed = 0; seed < 200; ++seed) {
    const Case random = make_random_case(seed);
    const std::vector<Program> programs = lower_all(random.chain, random.options);
    const auto expected = Clock(random, programs, kBalanced).run();
    const auto timelines = simulate(random.chain, random.options, programs, kBalanced);
    for (std::size_t rank = 0; rank < programs.size(); ++rank) {
      for (std::size_t i = 0; i < expected[rank].size(); ++i) {
        const std::string where = "seed " + std::to_string(seed) + " rank " + std::to_string(rank) + " " +
                                  to_string(programs[rank].instructions[i], random.chain);
        ASSERT_EQ(timelines[rank].spans[i].start, expected[rank][i].start) << where;
        ASSERT_EQ(timelines[rank].spans[i].end, expected[rank][i].end) << where;
      }
      exposed += timelines[rank].exposed_s;
      hidden += timelines[rank].communication_s() - timelines[rank].exposed_s;
    }
  }
  std::printf("200 cases: %.2f s of communication hidden, %.2f s exposed\n", hidden, exposed);
  EXPECT_GT(hidden, 0.1 * exposed);  // the cases have both
  EXPECT_GT(exposed, 0.1 * hidden);
}

TEST(Simulate, AStepTakesAtLeastItsLongestLaneAndAtMostAllWork) {
  for (int seed = 0; seed < 200; ++seed) {
    const Case random = make_random_case(seed);
    const std::vector<Program> programs = lower_all(random.chain, random.options);
    const Timeline timeline = simulate(random.chain, random.options, std::span(programs).first(1), kBalanced)[0];
    const double longest = *std::max_element(timeline.busy_s.begin(), timeline.busy_s.end());
    const double all = std::accumulate(timeline.busy_s.begin(), timeline.busy_s.end(), 0.0);
    EXPECT_GE(timeline.step_s, longest * (1 - 1e-12)) << "seed " << seed;
    EXPECT_LE(timeline.step_s, all * (1 + 1e-12)) << "seed " << seed;
    EXPECT_LE(timeline.exposed_s, timeline.communication_s() * (1 + 1e-12)) << "seed " << seed;
    EXPECT_LE(timeline.exposed_copy_s, timeline.busy_s[2] * (1 + 1e-12)) << "seed " << seed;
    // A rank alone waits for nobody: where it does not compute, it communicates or copies.
    EXPECT_NEAR(timeline.idle_s, 0, 1e-12 * all) << "seed " << seed;
    EXPECT_NEAR(timeline.step_s, timeline.busy_s[0] + timeline.exposed_s + timeline.exposed_copy_s, 1e-12 * all)
        << "seed " << seed;
  }
}

TEST(Simulate, FasterCommunicationNeverLengthensAStep) {
  Rates faster = kBalanced, free = kBalanced;
  faster.collective_bytes_per_s *= 3;
  free.collective_latency_s = 0;
  free.collective_bytes_per_s = std::numeric_limits<double>::infinity();
  int shorter = 0;
  for (int seed = 0; seed < 200; ++seed) {
    const Case random = make_random_case(seed);
    const std::vector<Program> programs = lower_all(random.chain, random.options);
    const auto step = [&](const Rates& rates) {
      return simulate(random.chain, random.options, programs, rates)[0].step_s;
    };
    const double slow = step(kBalanced), fast = step(faster), none = step(free);
    EXPECT_LE(fast, slow) << "seed " << seed;
    EXPECT_LE(none, fast) << "seed " << seed;
    if (none < slow) ++shorter;
  }
  EXPECT_GT(shorter, 100);
}

// At every moment the curve holds what is in use, and what is in use fits into the memory that was planned.
TEST(Simulate, MemoryIsWhatLivesAndStaysInThePlan) {
  for (int seed = 0; seed < 100; ++seed) {
    const Case random = make_random_case(seed);
    const std::vector<Program> programs = lower_all(random.chain, random.options);
    const auto timelines = simulate(random.chain, random.options, programs, kBalanced);
    for (std::size_t rank = 0; rank < programs.size(); ++rank) {
      const Program& program = programs[rank];
      const Timeline& timeline = timelines[rank];
      std::int64_t peak = 0;
      for (const MemoryPoint& point : timeline.memory) {
        std::int64_t live = program.persistent_bytes;
        for (int buffer = 0; buffer < static_cast<int>(program.buffers.size()); ++buffer) {
          if (is_persistent(program.buffers[buffer].kind) || program.buffers[buffer].tier == Tier::host) continue;
          bool begun = false, ended = true;
          for (std::size_t i = 0; i < program.instructions.size(); ++i) {
            const Instruction& instruction = program.instructions[i];
            const bool touches = std::count(instruction.reads.begin(), instruction.reads.end(), buffer) +
                                     std::count(instruction.writes.begin(), instruction.writes.end(), buffer) >
                                 0;
            if (touches && timeline.spans[i].start <= point.time) begun = true;
            if (touches && timeline.spans[i].end > point.time) ended = false;
          }
          if (begun && !ended) live += program.buffers[buffer].bytes;
        }
        ASSERT_EQ(point.bytes, live) << "seed " << seed << " at " << point.time;
        peak = std::max(peak, point.bytes);
      }
      EXPECT_EQ(timeline.peak_bytes, peak);
      EXPECT_LE(peak, program.persistent_bytes + program.arena_bytes) << "seed " << seed;
      EXPECT_EQ(timeline.memory.back().bytes, program.persistent_bytes) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace trireme::schedule
