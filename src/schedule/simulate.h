// Predicts a step from lowered programs: when each instruction runs, what communication is not hidden, which memory
// lives when.
//
// A model, not a measurement. Costs are those of cost.h; ranks are equally fast, lanes do not slow each other down, and
// a collective begins when every rank has reached it.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "schedule/cost.h"

namespace trireme::schedule {

// Seconds since the step began.
struct Span {
  double start = 0, end = 0;
  double length() const { return end - start; }
};

// So many bytes live from `time` on, until the next point.
struct MemoryPoint {
  double time = 0;
  std::int64_t bytes = 0;
};

// One rank's step in time, predicted or measured.
struct Timeline {
  std::vector<Span> spans;                 // of Program::instructions
  double step_s = 0;                       // until the last lane is at rest
  std::array<double, kNumLanes> busy_s{};  // of each lane; the rest of the step it is idle
  double exposed_s = 0;                    // the reduce lane works and the compute lane does not
  double exposed_copy_s = 0;               // the copy lane works and no other does
  double idle_s = 0;                       // none works: all wait for other ranks
  double waiting_s = 0;                    // the compute lane waits for another lane: for what its next instruction
                                           // needs, or for the step's end
  double outside_s = 0;                    // the compute lane could work and does not; 0 in a prediction
  std::vector<MemoryPoint> memory;  // of the device, by time; persistent buffers, and others from first use to last
  std::int64_t peak_bytes = 0;

  double communication_s() const { return busy_s[static_cast<int>(Lane::reduce)]; }
};

// Timeline::waiting_s of these spans.
double waiting_seconds(const Program& program, std::span<const Span> spans);

// Sums up when the instructions of a program ran. spans.size() == program.instructions.size(); no two of a lane
// overlap.
Timeline summarize(const Program& program, std::vector<Span> spans);

// Timelines of `programs`, in their order. They are those of ranks that take part in the same collectives: all ranks,
// or one of each class (rank_classes.h), or one rank alone, which then never waits for others.
std::vector<Timeline> simulate(const ChainSpec& chain, const Options& options, std::span<const Program> programs,
                               const Rates& rates);

}  // namespace trireme::schedule
