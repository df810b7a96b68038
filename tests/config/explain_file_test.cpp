// `trireme config explain`: every key of a file has a line that says what became of it.
#include "config/explain_file.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "helpers.h"

namespace trireme::config {
namespace {

// The line of a key, without the spaces between its columns.
std::string line_of(const std::string& table, const std::string& key) {
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    if (line.find(" " + key + " = ") == std::string::npos) continue;
    std::istringstream words(line);
    std::string result;
    for (std::string word; words >> word;) result += (result.empty() ? "" : " ") + word;
    return result;
  }
  ADD_FAILURE() << key << " is not in\n" << table;
  return {};
}

TEST(ExplainFile, TellsTheFateOfEachKeyOfAConfiguration) {
  const std::string table = explain_file(
      "training:\n  lr: 1e-3\n  max_steps: 5\n  torch_compile: true\ndistributed:\n  tp: 1\n  zero_stage: 2\n",
      "run.yaml");
  EXPECT_TRUE(table.starts_with("run.yaml is read as a configuration\n")) << table;
  EXPECT_EQ(line_of(table, "training.lr"), "run.yaml:2:3 training.lr = 1e-3 mapped training.learning_rate = 0.001");
  EXPECT_EQ(line_of(table, "training.max_steps"),
            "run.yaml:3:3 training.max_steps = 5 supported training.max_steps = 5");
  EXPECT_EQ(line_of(table, "training.torch_compile"),
            "run.yaml:4:3 training.torch_compile = true no effect there is no graph to compile");
  EXPECT_EQ(line_of(table, "distributed.tp"), "run.yaml:6:3 distributed.tp = 1 refused off");
  EXPECT_EQ(line_of(table, "distributed.zero_stage"),
            "run.yaml:7:3 distributed.zero_stage = 2 mapped distributed.strategy = \"zero2\"");
}

TEST(ExplainFile, KnowsAToolByTheKeysOfItsFile) {
  const std::string deepspeed = explain_file(
      "{\"train_batch_size\": \"auto\",\n \"zero_optimization\": {\"stage\": 3, \"contiguous_gradients\": true}}", "x");
  EXPECT_TRUE(deepspeed.starts_with("x is read as a file of DeepSpeed\n")) << deepspeed;
  EXPECT_NE(line_of(deepspeed, "train_batch_size").find("supported auto: left to our keys"), std::string::npos);
  EXPECT_EQ(line_of(deepspeed, "zero_optimization.stage"),
            "x:2:24 zero_optimization.stage = 3 supported distributed.strategy = \"zero3\"");
  EXPECT_NE(line_of(deepspeed, "zero_optimization.contiguous_gradients").find("no effect"), std::string::npos);
  EXPECT_TRUE(explain_file("compute_environment: LOCAL_MACHINE\ndistributed_type: 'NO'\nmixed_precision: bf16\n", "a")
                  .starts_with("a is read as a file of accelerate\n"));
}

std::vector<std::string> json_blocks_of(const std::filesystem::path& guide) {
  std::ifstream file(guide);
  std::vector<std::string> blocks;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("```")) {
      inside = line == "```json";
      if (inside) blocks.emplace_back();
    } else if (inside) {
      blocks.back() += line + "\n";
    }
  }
  for (std::string& block : blocks) {
    if (!block.starts_with("{")) block.insert(0, "{").append("}");
  }
  return blocks;
}

TEST(ExplainFile, OfEveryJsonBlockOfTheGuides) {
  const char* given = std::getenv("TRIREME_GUIDES");
  const std::filesystem::path folder =
      given != nullptr ? std::filesystem::path(given) : std::filesystem::path(TRIREME_SOURCE_DIR) / "../shared/guides";
  if (!std::filesystem::is_directory(folder)) GTEST_SKIP() << "no guides at " << folder;
  int seen = 0;
  for (const auto& guide : std::filesystem::directory_iterator(folder)) {
    for (const std::string& block : json_blocks_of(guide.path())) {
      SCOPED_TRACE(guide.path().string() + "\n" + block);
      EXPECT_GT(explain_file(block, "block.json").find('\n'), 0u);
      ++seen;
    }
  }
  EXPECT_GE(seen, 4);
}

}  // namespace
}  // namespace trireme::config
