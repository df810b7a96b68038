// Seconds of something that was done often.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/device.h"

namespace trireme::measure {

struct Timing {
  double median = 0;
  double low = 0, high = 0;  // a tenth of the runs lies below, a tenth above
  std::int64_t runs = 0;
};
Timing timing_of(std::vector<double> seconds);  // at least one

// Runs all works in turn, as a step does, until `seconds` are over, three times at least, and one round first that does
// not count. On a stream they are timed there: the kernels of a work, one after another, without the host. The last of
// them runs once more before each round, untimed.
// stream null: on the CPU.
std::vector<Timing> time_in_turn(std::span<const std::function<void()>> works, double seconds,
                                 const kernels::Stream* stream);

// The same, so many rounds: as often on all ranks, where works are collectives.
std::vector<Timing> time_rounds(std::span<const std::function<void()>> works, int rounds,
                                const kernels::Stream* stream);

// Since the epoch of the system's start, as the start of a process is known by; to 0.01 s.
double seconds_since_boot();
double start_of_process();

}  // namespace trireme::measure
