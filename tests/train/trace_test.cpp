// monitor.trace_step: a step's timeline, as planned and as it ran.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "support/temporary_folder.h"
#include "train/dry_run.h"
#include "train/tiny_run.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

struct Nanoseconds {
  std::int64_t start = -1, end = -1;
};

// By instruction, of one process of a trace; fails the test where one comes twice.
std::vector<Nanoseconds> spans_of(const nlohmann::json& trace, int process, std::size_t num_instructions) {
  std::vector<Nanoseconds> spans(num_instructions);
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] != "X" || event["pid"] != process) continue;
    Nanoseconds& span = spans.at(event["args"]["instruction"].get<std::size_t>());
    EXPECT_EQ(span.start, -1) << event["name"] << " twice";
    span.start = std::llround(event["ts"].get<double>() * 1000);
    span.end = span.start + std::llround(event["dur"].get<double>() * 1000);
  }
  return spans;
}

// Each instruction ran once, after what it waits for and after the one before it on its lane.
void expect_order(const schedule::Program& program, const std::vector<Nanoseconds>& spans) {
  std::array<std::int64_t, schedule::kNumLanes> free{};
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const schedule::Instruction& instruction = program.instructions[i];
    ASSERT_GE(spans[i].start, 0) << "instruction " << i << " is missing";
    EXPECT_GE(spans[i].end, spans[i].start) << i;
    for (const int other : instruction.waits) EXPECT_GE(spans[i].start, spans[other].end) << i << " after " << other;
    EXPECT_GE(spans[i].start, free[static_cast<int>(instruction.lane)]) << i;
    free[static_cast<int>(instruction.lane)] = spans[i].end;
  }
}

std::vector<std::string> traces_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("trace")) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST(TraceStep, HoldsEveryInstructionOfThatStepAsPlannedAndAsMeasured) {
  for (const std::string strategy : {"ddp", "zero3"}) {
    const TemporaryFolder folder;
    TinyRun run{.ranks = 2, .micro_batches = 5, .steps = 4, .reduce_each_micro_batch = false};
    run.output_dir = folder.path() / "traced";
    run.overrides = {"distributed.strategy=" + strategy, "monitor.trace_step=3"};
    const TinyResult traced = train_tiny(run);
    EXPECT_EQ(traces_in(run.output_dir),
              (std::vector<std::string>{"trace-step-3-rank-0.json", "trace-step-3-rank-1.json"}));
    for (const int rank : {0, 1}) {
      const auto step = train::describe_run(tiny_plan(run), run.ranks, rank).step;
      const auto trace =
          nlohmann::json::parse(read_file(run.output_dir / ("trace-step-3-rank-" + std::to_string(rank) + ".json")));
      const std::size_t count = step.program().instructions.size();
      const auto planned = spans_of(trace, 0, count), measured = spans_of(trace, 1, count);
      expect_order(step.program(), planned);
      expect_order(step.program(), measured);
      std::int64_t work = 0;
      for (std::size_t i = 0; i < count; ++i) {
        if (step.program().instructions[i].unit >= 0) work += measured[i].end - measured[i].start;
      }
      EXPECT_GT(work, 10'000) << "units take more than 10 us";
    }
    TinyRun plain = run;
    plain.output_dir = folder.path() / "plain";
    plain.overrides.pop_back();
    EXPECT_EQ(train_tiny(plain).losses, traced.losses);
    EXPECT_TRUE(traces_in(plain.output_dir).empty());
  }
}

// A folder that lies where the trace would go: the run goes on and ends as ever.
TEST(TraceStep, ThatCannotBeWrittenDoesNotEndTheRun) {
  const TemporaryFolder folder;
  TinyRun run{.steps = 3};
  run.output_dir = folder.path() / "run";
  run.overrides = {"monitor.trace_step=2"};
  fs::create_directories(run.output_dir / "trace-step-2-rank-0.json/occupied");
  EXPECT_EQ(train_tiny(run).last_step, 3);
  EXPECT_TRUE(fs::is_directory(run.output_dir / "trace-step-2-rank-0.json"));
}

}  // namespace
}  // namespace trireme::testing
