#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "schedule/draw.h"

namespace trireme::schedule {
namespace {

using nlohmann::json;

constexpr std::array<const char*, kNumLanes> kThreadNames = {"compute lane", "reduce lane", "copy lane"};

std::int64_t nanoseconds(double time) {
  return std::llround(std::min(time * 1e9, 9e18));  // slow rates may ask for centuries
}

double microseconds(std::int64_t nanoseconds) {
  return static_cast<double>(nanoseconds) / 1000;
}

json metadata(int process, int thread, const char* name, json arguments) {
  return {{"ph", "M"}, {"pid", process}, {"tid", thread}, {"name", name}, {"args", std::move(arguments)}};
}

std::int64_t buffer_bytes(const Program& program, const Instruction& instruction) {
  std::int64_t bytes = 0;
  for (const auto* list : {&instruction.reads, &instruction.writes}) {
    for (const int buffer : *list) bytes += program.buffers[buffer].bytes;
  }
  return bytes;
}

json event(const ChainSpec& chain, const Options& options, const Program& program, int index, int process,
           const Span& span) {
  const Instruction& instruction = program.instructions[index];
  json arguments{{"instruction", index}, {"buffer_bytes", buffer_bytes(program, instruction)}};
  if (instruction.round >= 0) arguments["round"] = instruction.round;
  if (instruction.micro_batch >= 0) arguments["micro_batch"] = instruction.micro_batch;
  if (is_collective(instruction)) arguments["wire_bytes"] = wire_bytes(chain, options, instruction);
  const std::string name = to_string(instruction, chain);
  const std::int64_t start = nanoseconds(span.start), end = nanoseconds(span.end);
  return {{"ph", "X"},
          {"pid", process},
          {"tid", static_cast<int>(instruction.lane)},
          {"name", name},
          {"cat", name.substr(0, name.find(' '))},
          {"ts", microseconds(start)},
          {"dur", microseconds(end - start)},
          {"args", std::move(arguments)}};
}

}  // namespace

std::string to_chrome_trace(const ChainSpec& chain, const Options& options, const Program& program,
                            std::span<const TraceProcess> processes, const std::string& note) {
  json events = json::array();
  for (int process = 0; process < static_cast<int>(processes.size()); ++process) {
    const Timeline& timeline = processes[process].timeline;
    const std::string name = "rank " + std::to_string(program.rank) + ", " + processes[process].name;
    events.push_back(metadata(process, 0, "process_name", {{"name", name}}));
    events.push_back(metadata(process, 0, "process_sort_index", {{"sort_index", process}}));
    for (int lane = 0; lane < kNumLanes; ++lane) {
      if (static_cast<Lane>(lane) == Lane::copy && !uses(program, Lane::copy)) continue;
      events.push_back(metadata(process, lane, "thread_name", {{"name", kThreadNames[lane]}}));
      events.push_back(metadata(process, lane, "thread_sort_index", {{"sort_index", lane}}));
    }
    for (int index = 0; index < static_cast<int>(timeline.spans.size()); ++index) {
      events.push_back(event(chain, options, program, index, process, timeline.spans[index]));
    }
    for (const MemoryPoint& point : timeline.memory) {
      events.push_back({{"ph", "C"},
                        {"pid", process},
                        {"name", "memory"},
                        {"ts", microseconds(nanoseconds(point.time))},
                        {"args", {{"bytes", point.bytes}}}});
    }
  }
  const json trace{{"displayTimeUnit", "ms"}, {"otherData", {{"rates", note}}}, {"traceEvents", std::move(events)}};
  return trace.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace trireme::schedule
