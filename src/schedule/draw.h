// Draws a program's step in time: as a trace for chrome://tracing and Perfetto, and as letters for a terminal.
#pragma once
#include <span>
#include <string>

#include "schedule/simulate.h"

namespace trireme::schedule {

// One way in which the program ran: "planned", "measured".
struct TraceProcess {
  std::string name;
  const Timeline& timeline;
};

// Chrome's trace format, JSON object form: a process each, with a thread a lane, one complete event ("X") an
// instruction, named as to_string() does, and a counter of memory. Times are whole nanoseconds written as microseconds,
// so that neighbours touch and never overlap. Arguments of an event: "instruction" (index), "round" and "micro_batch"
// where it has them, "wire_bytes" of collectives, "buffer_bytes" that it reads and writes. note: kept as
// otherData.rates.
std::string to_chrome_trace(const ChainSpec& chain, const Options& options, const Program& program,
                            std::span<const TraceProcess> processes, const std::string& note);

// Lines of at most `width` characters (at least 48 are taken): the whole step, then, where there are several rounds,
// the first and the last in detail. Rows are lanes, columns are equal times with the letter of what took most of each,
// a small one where the lane idles for more than half of it; below them, where there is room, the number of the unit or
// group. Memory in tenths of its peak. A legend of what appears comes last.
std::string draw_step(const ChainSpec& chain, const Program& program, const Timeline& timeline, int width);

}  // namespace trireme::schedule
