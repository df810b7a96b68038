// What holds for the predictions of random schedules.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <numeric>

#include "schedule/chains.h"
#include "schedule/simulate.h"

namespace trireme::schedule {
namespace {

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
