#include "schedule/draw.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "schedule/chains.h"

namespace trireme::schedule {
namespace {

// Odd numbers: times are no whole nanoseconds.
const Rates kRates{.flops_per_s = 1.3e8,
                   .bytes_moved_per_s = 0.7e8,
                   .optimizer_bytes_per_s = 1.1e8,
                   .collective_latency_s = 2e-3 / 7,
                   .collective_bytes_per_s = 5.3e6};

struct Drawn {
  Case random;
  Program program;
  Timeline timeline;
};

// Rank 0's step of a random case.
Drawn make_drawn(std::uint64_t seed) {
  Drawn drawn{make_random_case(seed), {}, {}};
  const std::vector<Program> programs = lower_all(drawn.random.chain, drawn.random.options);
  drawn.program = programs[0];
  drawn.timeline = simulate(drawn.random.chain, drawn.random.options, programs, kRates)[0];
  return drawn;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

nlohmann::json trace_of(const Drawn& drawn, std::span<const TraceProcess> processes) {
  return nlohmann::json::parse(
      to_chrome_trace(drawn.random.chain, drawn.random.options, drawn.program, processes, "uncalibrated: x"));
}

TEST(Trace, HoldsEveryInstructionOnceAndNoneOverlapInALane) {
  for (int seed = 0; seed < 50; ++seed) {
    const Drawn drawn = make_drawn(seed);
    const TraceProcess planned{"planned", drawn.timeline};
    const nlohmann::json trace = trace_of(drawn, std::span(&planned, 1));
    EXPECT_EQ(trace["otherData"]["rates"], "uncalibrated: x");
    std::set<int> seen;
    std::map<int, std::int64_t> end_of_lane;
    for (const auto& event : trace["traceEvents"]) {
      if (event["ph"] != "X") continue;
      const int index = event["args"]["instruction"];
      ASSERT_TRUE(seen.insert(index).second) << "seed " << seed << ": twice";
      const Instruction& instruction = drawn.program.instructions[index];
      EXPECT_EQ(event["name"], to_string(instruction, drawn.random.chain));
      EXPECT_EQ(event["tid"], static_cast<int>(instruction.lane));
      EXPECT_EQ(event["args"].value("round", -1), instruction.round);
      EXPECT_EQ(event["args"].value("micro_batch", -1), instruction.micro_batch);
      EXPECT_EQ(event["args"].contains("wire_bytes"), is_collective(instruction));
      const std::int64_t start = std::llround(event["ts"].get<double>() * 1000);
      const std::int64_t length = std::llround(event["dur"].get<double>() * 1000);
      EXPECT_EQ(start, std::llround(drawn.timeline.spans[index].start * 1e9));
      EXPECT_EQ(start + length, std::llround(drawn.timeline.spans[index].end * 1e9));
      std::int64_t& end = end_of_lane[event["tid"]];
      EXPECT_GE(start, end) << "seed " << seed << ": " << event["name"];
      end = start + length;
    }
    EXPECT_EQ(seen.size(), drawn.program.instructions.size()) << "seed " << seed;
  }
}

TEST(Trace, NamesProcessesAndLanesAndCountsMemory) {
  const Drawn drawn = make_drawn(3);
  const TraceProcess both[] = {{"planned", drawn.timeline}, {"measured", drawn.timeline}};
  const nlohmann::json trace = trace_of(drawn, both);
  std::map<std::string, std::set<std::string>> names;
  std::vector<std::int64_t> memory;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] == "M" && event["args"].contains("name")) names[event["name"]].insert(event["args"]["name"]);
    if (event["ph"] == "C" && event["pid"] == 1) memory.push_back(event["args"]["bytes"]);
  }
  EXPECT_EQ(names["process_name"], (std::set<std::string>{"rank 0, planned", "rank 0, measured"}));
  std::set<std::string> lanes{"compute lane", "reduce lane"};
  if (uses(drawn.program, Lane::copy)) lanes.insert("copy lane");
  EXPECT_EQ(names["thread_name"], lanes);
  std::vector<std::int64_t> expected;
  for (const MemoryPoint& point : drawn.timeline.memory) expected.push_back(point.bytes);
  EXPECT_EQ(memory, expected);
}

TEST(Drawing, HasTheLanesAndFitsTheWidth) {
  for (int seed = 0; seed < 50; ++seed) {
    const Drawn drawn = make_drawn(seed);
    for (const int width : {48, 80, 133}) {
      const std::string text = draw_step(drawn.random.chain, drawn.program, drawn.timeline, width);
      int compute = 0, reduce = 0, memory = 0;
      for (const std::string& line : lines_of(text)) {
        EXPECT_LE(line.size(), static_cast<std::size_t>(width)) << line;
        compute += line.starts_with("  compute ");
        reduce += line.starts_with("  reduce ");
        memory += line.starts_with("  memory ");
      }
      const int rounds = (drawn.random.options.num_micro_batches + drawn.random.options.world_size - 1) /
                         drawn.random.options.world_size;
      const bool drain = drawn.random.options.pass == Pass::drain;
      EXPECT_EQ(compute, drain || rounds == 1 ? 1 : 3) << text;
      EXPECT_EQ(reduce, compute);
      EXPECT_EQ(memory, 1);
      const auto& units = drawn.random.chain.units;
      for (std::size_t unit = 0; unit < units.size(); ++unit) {
        const std::string word = std::to_string(unit) + " " + units[unit].name + (unit + 1 < units.size() ? "," : "\n");
        EXPECT_NE(text.find(word), std::string::npos) << word << " is not in the legend of\n" << text;
      }
    }
  }
}

// The slowest and the fastest rates that a file may have: times stay numbers that can be drawn.
TEST(Drawing, TakesAnyRates) {
  Drawn drawn = make_drawn(3);
  for (const double per_s : {1.0, 1e18}) {
    for (const double latency : {0.0, 3600.0}) {
      const Rates rates{per_s, per_s, per_s, latency, per_s};
      for (UnitSpec& unit : drawn.random.chain.units) unit.forward_flops = 1e25;
      const Case& random = drawn.random;
      drawn.timeline = simulate(random.chain, random.options, std::span(&drawn.program, 1), rates)[0];
      for (const std::string& line : lines_of(draw_step(random.chain, drawn.program, drawn.timeline, 80))) {
        EXPECT_LE(line.size(), 80u) << line;
      }
      const TraceProcess planned{"planned", drawn.timeline};
      const nlohmann::json trace = trace_of(drawn, std::span(&planned, 1));
      for (const auto& event : trace["traceEvents"]) {
        if (event["ph"] == "X") {
          EXPECT_GE(event["dur"], 0) << event["name"];
        }
      }
    }
  }
}

// A unit and a head of 512 elements each: 1 s forward, 3 s head, 2 s backward.
ChainSpec make_timed_chain() {
  ChainSpec chain;
  chain.groups = {{"a", 512, true}, {"h", 512, true}};
  chain.units = {{"a", {0}, {0}, 256, 256}, {"head", {1}, {1}}};
  chain.units[0].forward_flops = 1e9;
  chain.units[0].backward_flops = 2e9;
  chain.units[1].backward_flops = 3e9;
  return chain;
}

// 60 columns are 0.1 s each.
TEST(Drawing, GivesEachInstructionItsShareOfTheColumns) {
  const ChainSpec chain = make_timed_chain();
  const std::vector<Program> programs = lower_all(chain, Options{});
  const Timeline timeline = simulate(chain, {}, programs, {.flops_per_s = 1e9})[0];
  const std::string text = draw_step(chain, programs[0], timeline, 70);
  const std::vector<std::string> lines = lines_of(text);
  ASSERT_GE(lines.size(), 7u) << text;
  EXPECT_EQ(lines[1], "  compute " + std::string(10, 'F') + std::string(30, 'L') + std::string(20, 'B'));
  EXPECT_EQ(lines[2], "  unit    0" + std::string(9, ' ') + "1" + std::string(29, ' ') + "0");
  EXPECT_EQ(lines[3], "  reduce  " + std::string(60, '.'));
  EXPECT_TRUE(lines[4].starts_with("  memory  9")) << text;
  EXPECT_NE(text.find("F forward, L loss, B backward, . idle"), std::string::npos) << text;
  EXPECT_NE(text.find("units: 0 a, 1 head"), std::string::npos) << text;
}

// Collectives that are short against a column are seen all the same, as small letters; long ones as large ones.
TEST(Drawing, HidesNoShortCommunication) {
  const ChainSpec chain = make_timed_chain();
  const Options options{.world_size = 2, .num_micro_batches = 2};
  const std::vector<Program> programs = lower_all(chain, options);
  const auto reduce_row = [&](double latency) {
    const Rates rates{.flops_per_s = 1e9, .collective_latency_s = latency, .collective_bytes_per_s = 1e9};
    const std::string text = draw_step(chain, programs[0], simulate(chain, options, programs, rates)[0], 80);
    EXPECT_NE(text.find("X reduce"), std::string::npos) << text;
    return lines_of(text)[3].substr(10);
  };
  const std::string brief = reduce_row(0.005), slow = reduce_row(0.5);
  EXPECT_EQ(brief.find_first_of("CXP"), std::string::npos) << brief;
  EXPECT_EQ(brief.front(), 'c') << brief;
  EXPECT_NE(brief.find(".x"), std::string::npos) << brief;
  EXPECT_NE(slow.find("XXXX"), std::string::npos) << slow;
}

}  // namespace
}  // namespace trireme::schedule
