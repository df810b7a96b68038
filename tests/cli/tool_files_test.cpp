// Files of other tools on the command line of train, plan and launch.
#include <gtest/gtest.h>

#include <fstream>

#include "cli/run_files.h"
#include "support/temporary_folder.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

class ToolFiles : public ::testing::Test {
 protected:
  ToolFiles() {
    write("run.yaml",
          "model: {hidden_size: 32, num_layers: 2, num_heads: 4, intermediate_size: 48}\n"
          "data: {path: " +
              tiny_data().string() +
              ", sequence_length: 16}\n"
              "training: {max_steps: 2}\nname: tiny\noutput_dir: " +
              (folder_.path() / "run").string() + "\n");
    write(
        "ds.json",
        "{\"train_batch_size\": 32,\n \"train_micro_batch_size_per_gpu\": 4,\n \"gradient_accumulation_steps\": 2, // "
        "of four\n \"zero_optimization\": {\"stage\": 2}}");
  }
  void write(const std::string& name, const std::string& text) const { std::ofstream(folder_.path() / name) << text; }
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  ProcessResult trireme(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), TRIREME_BINARY);
    return run(arguments, {{"XDG_CACHE_HOME", path("cache")}});
  }
  ProcessResult plan(std::vector<std::string> more) const {
    more.insert(more.begin(), {"plan", "--ranks", "4"});
    return trireme(more);
  }

 private:
  TemporaryFolder folder_;
};

void expect_plan_of_deepspeed(const ProcessResult& result) {
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("32 samples = micro_batch_size 4 x 8 micro-batches over 4 ranks"), std::string::npos)
      << result.out.substr(0, 4000);
  EXPECT_NE(result.out.find("ds.json:1:2"), std::string::npos);
}

TEST_F(ToolFiles, AreNamedInAnySpellingAndAnyOrder) {
  const std::string config = path("run.yaml"), file = path("ds.json");
  expect_plan_of_deepspeed(plan({config, "--deepspeed", file}));
  expect_plan_of_deepspeed(plan({"--deepspeed", file, config}));
  expect_plan_of_deepspeed(plan({config, "--deepspeed_config", file}));
  expect_plan_of_deepspeed(plan({config, "--deepspeed-config=" + file}));
  expect_plan_of_deepspeed(plan({"--config", config, "--deepspeed=" + file}));
}

// As DeepSpeed's own programs take it: --deepspeed is a flag, and what follows it belongs to someone else.
TEST_F(ToolFiles, DeepspeedAloneIsAFlag) {
  const std::string config = path("run.yaml"), file = path("ds.json");
  expect_plan_of_deepspeed(plan({config, "--deepspeed", "--deepspeed_config", file}));
  expect_plan_of_deepspeed(plan({"--deepspeed", config, "--deepspeed_config", file}));
  expect_plan_of_deepspeed(plan({config, "--deepspeed", "training.seed=3", "--deepspeed_config", file}));
  expect_plan_of_deepspeed(plan({config, "--deepspeed_config", file, "--deepspeed"}));
  const ProcessResult none = plan({config, "--deepspeed"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_NE(none.err.find("TR2015"), std::string::npos) << none.err;
  const ProcessResult two = plan({config, "--deepspeed", file, "--deepspeed_config", path("other.json")});
  EXPECT_EQ(two.exit_code, 2);
  EXPECT_NE(two.err.find("other.json"), std::string::npos) << two.err;
}

TEST_F(ToolFiles, OfFsdpAndAccelerateReachThePlan) {
  write("fsdp.json", "{\"fsdp_sharding_strategy\": \"FULL_SHARD\"}");
  write("acc.yaml", "distributed_type: MULTI_CPU\nmixed_precision: bf16\n");
  for (const char* flag : {"--fsdp_config", "--fsdp-config"}) {
    const ProcessResult result = plan({path("run.yaml"), flag, path("fsdp.json")});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_NE(result.out.find("full_shard"), std::string::npos);
  }
  for (const char* flag : {"--config_file", "--config-file"}) {
    const ProcessResult result = plan({path("run.yaml"), flag, path("acc.yaml")});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_NE(result.out.find("acc.yaml:2:1"), std::string::npos) << result.out.substr(0, 2000) << result.err;
  }
}

// Four processes train what the file says; two cannot, and one error shows why before any of them starts.
TEST_F(ToolFiles, GoThroughLaunchWithTheEquationOfTheBatch) {
  const auto launched = [&](const std::string& ranks) {
    return trireme({"launch", "--nproc-per-node", ranks, "train", path("run.yaml"), "--deepspeed", path("ds.json")});
  };
  const ProcessResult two = launched("2");
  EXPECT_EQ(two.exit_code, 2);
  for (const char* word :
       {"TR2212", "ds.json:1:2", "micro_batch_size 4", "ds.json:2:2", "gradient_accumulation_steps 2", "ds.json:3:2",
        "2 ranks (--nproc-per-node)", "4 x 2 x 2 = 16", "start 4 ranks"}) {
    EXPECT_NE(two.err.find(word), std::string::npos) << word << " is not in\n" << two.err;
  }
  EXPECT_FALSE(fs::exists(path("run")));
  const ProcessResult four = launched("4");
  EXPECT_EQ(four.exit_code, 0) << four.err;
  EXPECT_EQ(read_metrics(path("run")).losses.size(), 2u);
}

}  // namespace
}  // namespace trireme::testing
