#include "schedule/simulate.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "base/error.h"

namespace trireme::schedule {
namespace {

// One rank's program under way. Waits point backwards, so issue order meets every wait's end before its use.
class Rank {
 public:
  Rank(const ChainSpec& chain, const Options& options, const Program& program, const Rates& rates)
      : chain_(chain), options_(options), program_(program), rates_(rates), spans_(program.instructions.size()) {}

  // Goes on to the next collective; false where there is none left.
  bool reach_collective() {
    for (; next_ < spans_.size(); ++next_) {
      if (is_collective(program_.instructions[next_])) return true;
      run_next(ready());
    }
    return false;
  }

  // When its lane is free and its waits have ended.
  double ready() const {
    const Instruction& instruction = program_.instructions[next_];
    double time = free_[static_cast<int>(instruction.lane)];
    for (const int other : instruction.waits) time = std::max(time, spans_[other].end);
    return time;
  }

  void run_collective(double start) { run_next(start), ++next_; }

  std::vector<Span> take_spans() { return std::move(spans_); }

 private:
  void run_next(double start) {
    const Instruction& instruction = program_.instructions[next_];
    const double end = start + seconds(chain_, options_, program_, instruction, rates_);
    spans_[next_] = {start, end};
    free_[static_cast<int>(instruction.lane)] = end;
  }

  const ChainSpec& chain_;
  const Options& options_;
  const Program& program_;
  const Rates& rates_;
  std::vector<Span> spans_;
  std::size_t next_ = 0;
  std::array<double, kNumLanes> free_{};
};

std::vector<Span> spans_of_lane(const Program& program, const std::vector<Span>& spans, Lane lane) {
  std::vector<Span> found;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    if (program.instructions[i].lane == lane) found.push_back(spans[i]);
  }
  return found;
}

double total(const std::vector<Span>& spans) {
  double sum = 0;
  for (const Span& span : spans) sum += span.length();
  return sum;
}

// How long both lanes work at once. Each is in order and free of overlaps.
double overlap(const std::vector<Span>& a, const std::vector<Span>& b) {
  double sum = 0;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    sum += std::max(0.0, std::min(a[i].end, b[j].end) - std::max(a[i].start, b[j].start));
    if (a[i].end < b[j].end) {
      ++i;
    } else {
      ++j;
    }
  }
  return sum;
}

// When at least one of both lanes works, in order.
std::vector<Span> either(std::vector<Span> a, const std::vector<Span>& b) {
  a.insert(a.end(), b.begin(), b.end());
  std::sort(a.begin(), a.end(), [](const Span& left, const Span& right) { return left.start < right.start; });
  std::vector<Span> merged;
  for (const Span& span : a) {
    if (merged.empty() || span.start > merged.back().end) {
      merged.push_back(span);
    } else {
      merged.back().end = std::max(merged.back().end, span.end);
    }
  }
  return merged;
}

std::vector<MemoryPoint> memory_curve(const Program& program, const std::vector<Span>& spans) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  std::vector<Span> lives(program.buffers.size(), Span{kNever, -kNever});
  for (std::size_t i = 0; i < spans.size(); ++i) {
    for (const auto* list : {&program.instructions[i].reads, &program.instructions[i].writes}) {
      for (const int buffer : *list) {
        lives[buffer].start = std::min(lives[buffer].start, spans[i].start);
        lives[buffer].end = std::max(lives[buffer].end, spans[i].end);
      }
    }
  }
  std::map<double, std::int64_t> changes{{0.0, program.persistent_bytes}};
  for (std::size_t buffer = 0; buffer < lives.size(); ++buffer) {
    const bool on_host = program.buffers[buffer].tier == Tier::host;
    if (is_persistent(program.buffers[buffer].kind) || on_host || lives[buffer].end < lives[buffer].start) continue;
    changes[lives[buffer].start] += program.buffers[buffer].bytes;
    changes[lives[buffer].end] -= program.buffers[buffer].bytes;
  }
  std::vector<MemoryPoint> curve;
  std::int64_t bytes = 0;
  for (const auto& [time, change] : changes) {
    if (change == 0) continue;
    bytes += change;
    curve.push_back({time, bytes});
  }
  return curve;
}

}  // namespace

double waiting_seconds(const Program& program, std::span<const Span> spans) {
  double waiting = 0, free = 0, end = 0;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    end = std::max(end, spans[i].end);
    if (program.instructions[i].lane != Lane::compute) continue;
    double ready = 0;
    for (const int other : program.instructions[i].waits) ready = std::max(ready, spans[other].end);
    waiting += std::max(0.0, std::min(ready, spans[i].start) - free);
    free = spans[i].end;
  }
  return waiting + std::max(0.0, end - free);
}

Timeline summarize(const Program& program, std::vector<Span> spans) {
  TRIREME_CHECK(spans.size() == program.instructions.size(), "a timeline has one span an instruction");
  Timeline timeline;
  for (const Span& span : spans) timeline.step_s = std::max(timeline.step_s, span.end);
  const std::vector<Span> compute = spans_of_lane(program, spans, Lane::compute);
  const std::vector<Span> reduce = spans_of_lane(program, spans, Lane::reduce);
  const std::vector<Span> copy = spans_of_lane(program, spans, Lane::copy);
  timeline.busy_s = {total(compute), total(reduce), total(copy)};
  timeline.exposed_s = std::max(0.0, total(reduce) - overlap(compute, reduce));
  timeline.exposed_copy_s = std::max(0.0, total(copy) - overlap(either(compute, reduce), copy));
  timeline.idle_s = std::max(0.0, timeline.step_s - total(compute) - timeline.exposed_s - timeline.exposed_copy_s);
  timeline.waiting_s = waiting_seconds(program, spans);
  timeline.outside_s = std::max(0.0, timeline.step_s - total(compute) - timeline.waiting_s);
  timeline.memory = memory_curve(program, spans);
  for (const MemoryPoint& point : timeline.memory) timeline.peak_bytes = std::max(timeline.peak_bytes, point.bytes);
  timeline.spans = std::move(spans);
  return timeline;
}

std::vector<Timeline> simulate(const ChainSpec& chain, const Options& options, std::span<const Program> programs,
                               const Rates& rates) {
  std::vector<Rank> ranks;
  for (const Program& program : programs) ranks.emplace_back(chain, options, program, rates);
  while (true) {
    std::size_t arrived = 0;
    double start = 0;
    for (Rank& rank : ranks) {
      if (!rank.reach_collective()) continue;
      ++arrived;
      start = std::max(start, rank.ready());
    }
    if (arrived == 0) break;
    TRIREME_CHECK(arrived == ranks.size(), "a rank ends before a collective of the others");
    for (Rank& rank : ranks) rank.run_collective(start);
  }
  std::vector<Timeline> timelines;
  for (std::size_t i = 0; i < ranks.size(); ++i) timelines.push_back(summarize(programs[i], ranks[i].take_spans()));
  return timelines;
}

}  // namespace trireme::schedule
