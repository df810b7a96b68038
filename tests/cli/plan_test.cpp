// `trireme plan` as a user runs it: what it prints, and the one file that it writes when asked.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/file.h"
#include "cli/run_files.h"
#include "support/temporary_folder.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

class PlanCommand : public ::testing::Test {
 protected:
  PlanCommand()
      : config_(write_config(
            {.micro_batches = 5, .reduce_each_micro_batch = false, .output_dir = folder_.path() / "run"})) {}
  ProcessResult plan(const std::vector<std::string>& more) const {
    std::vector<std::string> command{TRIREME_BINARY, "plan", config_.string()};
    command.insert(command.end(), more.begin(), more.end());
    return run(command, cache());
  }
  // Where rates are left and looked for: not the user's own.
  std::map<std::string, std::string> cache() const { return {{"XDG_CACHE_HOME", folder_.path() / "cache"}}; }
  fs::path rates(const std::string& bytes_per_s) const {
    const fs::path path = folder_.path() / "rates.json";
    std::ofstream(path) << "{\"flops_per_s\": 1e9, \"bytes_moved_per_s\": 1e9, \"optimizer_bytes_per_s\": 1e9, "
                           "\"collective_latency_s\": 0, \"collective_bytes_per_s\": "
                        << bytes_per_s << ", \"machine\": \"two old cores\"}";
    return path;
  }
  // The number of the line that begins with `what`.
  static double number(const std::string& text, const std::string& what) {
    const std::size_t at = text.find("\n  " + what + " ");
    EXPECT_NE(at, std::string::npos) << what << " is not in\n" << text;
    return at == std::string::npos ? -1 : std::stod(text.substr(at + 3 + what.size()));
  }

  TemporaryFolder folder_;
  fs::path config_;
};

TEST_F(PlanCommand, PrintsWhatADryRunDoesThenThePredictionAndTheDrawing) {
  const ProcessResult dry =
      run({TRIREME_BINARY, "launch", "--nproc-per-node", "2", "train", config_.string(), "--dry-run"});
  const ProcessResult result = plan({"--ranks", "2"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  ASSERT_TRUE(result.out.starts_with(dry.out)) << dry.out << "-----\n" << result.out;
  const std::string rest = result.out.substr(dry.out.size());
  EXPECT_TRUE(rest.starts_with("predicted step of rank 0 (uncalibrated: ")) << rest;
  EXPECT_GT(number(rest, "step"), 0);
  EXPECT_GT(number(rest, "exposed communication"), 0);
  EXPECT_GT(number(rest, "peak memory"), 0);
  std::istringstream drawing(rest.substr(rest.find("\nstep: ") + 1));
  int lanes = 0;
  for (std::string line; std::getline(drawing, line);) {
    EXPECT_LE(line.size(), 80u) << line;
    lanes += line.starts_with("  compute ") || line.starts_with("  reduce ");
  }
  EXPECT_EQ(lanes, 6) << rest;  // two of the step, of its first round and of its last
  EXPECT_FALSE(fs::exists(folder_.path() / "run"));
}

// `bench` on two processes, and `plan` finds what it wrote for as many compute threads, and for no others.
TEST_F(PlanCommand, TakesTheRatesThatBenchLeft) {
  const ProcessResult bench =
      run({TRIREME_BINARY, "bench", "--device", "cpu", "--seconds", "0.01", "--machine", "a shared one"}, cache());
  ASSERT_EQ(bench.exit_code, 0) << bench.err;
  EXPECT_GT(number("\n" + bench.out, "collectives beside computing"), 0);
  const ProcessResult result = plan({"training.compute_threads=1", "--ranks", "2"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("(a shared one)"), std::string::npos) << result.out;
  EXPECT_EQ(result.out.find("uncalibrated"), std::string::npos);
  EXPECT_NE(plan({"training.compute_threads=2", "--ranks", "2"}).out.find("uncalibrated"), std::string::npos);
  EXPECT_EQ(run({TRIREME_BINARY, "bench", "--ranks", "0"}, cache()).exit_code, 2);
}

TEST_F(PlanCommand, WritesATraceOfEveryInstructionAndNothingElse) {
  const fs::path file = folder_.path() / "schedule.json";
  for (const std::string rank : {"0", "1"}) {
    const ProcessResult result =
        plan({"--ranks", "2", "--rank", rank, "--schedule", file.string(), "distributed.strategy=zero3"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const nlohmann::json trace = nlohmann::json::parse(read_file(file));
    EXPECT_NE(trace["otherData"]["rates"].get<std::string>().find("uncalibrated"), std::string::npos);
    std::set<int> instructions;
    std::set<std::string> categories;
    for (const auto& event : trace["traceEvents"]) {
      if (event["ph"] == "M" && event["name"] == "process_name") {
        EXPECT_EQ(event["args"]["name"], "rank " + rank + ", planned");
      }
      if (event["ph"] != "X") continue;
      instructions.insert(event["args"]["instruction"].get<int>());
      categories.insert(event["cat"]);
    }
    EXPECT_TRUE(categories.contains("gather") && categories.contains("release"));
    const std::string count = std::to_string(instructions.size()) + " instructions a step on rank " + rank;
    EXPECT_NE(result.out.find(count), std::string::npos) << count << " is not in\n" << result.out;
    EXPECT_EQ(*instructions.rbegin() + 1, static_cast<int>(instructions.size()));
  }
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder_.path())) names.insert(entry.path().filename());
  EXPECT_EQ(names, (std::set<std::string>{"schedule.json", "tiny.yaml"}));
}

// Five micro-batches on two ranks: the second has none in the last round.
TEST_F(PlanCommand, ShowsThatARankWithLessWorkWaits) {
  EXPECT_EQ(number(plan({"--ranks", "2", "--rank", "0"}).out, "waiting for other ranks"), 0);
  EXPECT_GT(number(plan({"--ranks", "2", "--rank", "1"}).out, "waiting for other ranks"), 0);
}

TEST_F(PlanCommand, TakesRatesFromAFile) {
  const std::string slow = plan({"--ranks", "2", "--rates", rates("1e6").string()}).out;
  const std::string fast = plan({"--ranks", "2", "--rates", rates("1e9").string()}).out;
  EXPECT_EQ(slow.find("uncalibrated"), std::string::npos);
  EXPECT_NE(slow.find("rates.json (two old cores)"), std::string::npos) << slow;
  EXPECT_EQ(number(slow, "compute lane at work"), number(fast, "compute lane at work"));
  EXPECT_GT(number(slow, "reduce lane at work"), 100 * number(fast, "reduce lane at work"));
  EXPECT_GT(number(slow, "step"), number(fast, "step"));
}

}  // namespace
}  // namespace trireme::testing
