// Runs of the binary as a user starts them: ranks are processes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/run_files.h"
#include "support/temporary_folder.h"
#include "support/torchrun.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

struct Folder {
  TemporaryFolder folder;
  fs::path run = folder.path() / "run";
};

class SameBitsAsThreads : public ::testing::TestWithParam<std::tuple<int, bool>> {};

TEST_P(SameBitsAsThreads, OnAnyNumberOfProcesses) {
  Folder threads;
  TinyRun tiny{
      .ranks = 1, .micro_batches = std::get<0>(GetParam()), .tied = std::get<1>(GetParam()), .output_dir = threads.run};
  const TinyResult serial = train_tiny(tiny);
  for (const int ranks : {1, 2, 3, 4}) {
    Folder processes;
    tiny.output_dir = processes.run;
    const ProcessResult result = run(launch_command(ranks, write_config(tiny)));
    ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
    EXPECT_EQ(read_metrics(tiny.output_dir).losses, serial.losses) << ranks << " ranks";
    EXPECT_EQ(weights_digest(tiny.output_dir), serial.weights_digest) << ranks << " ranks";
  }
}

INSTANTIATE_TEST_SUITE_P(MicroBatches, SameBitsAsThreads,
                         ::testing::Combine(::testing::Values(4, 5, 6), ::testing::Bool()));

// A dozen cells of the strategies as processes, over Gloo.
TEST(Processes, StrategiesHaveTheBitsOfTheSerialRun) {
  for (const bool gpt2 : {false, true}) {
    Folder serial;
    TinyRun tiny{.ranks = 1, .micro_batches = 5, .steps = 5, .gpt2 = gpt2, .output_dir = serial.run};
    const TinyResult expected = train_tiny(tiny);
    const std::pair<const char*, int> cells[] = {{"zero1", 2}, {"zero2", 2}, {"zero3", 2},
                                                 {"zero3", 3}, {"zero2", 4}, {"shard_grad_op", 3}};
    for (const auto& [strategy, ranks] : cells) {
      SCOPED_TRACE(std::string(strategy) + " on " + std::to_string(ranks) + (gpt2 ? ", gpt2" : ", llama"));
      Folder processes;
      TinyRun run_of_cell = tiny;
      run_of_cell.output_dir = processes.run;
      run_of_cell.overrides = {std::string("distributed.strategy=") + strategy, "distributed.same_host_memory=false"};
      const ProcessResult result = run(launch_command(ranks, write_config(run_of_cell)));
      ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
      EXPECT_EQ(read_metrics(processes.run).losses, expected.losses);
      EXPECT_EQ(weights_digest(processes.run), expected.weights_digest);
    }
  }
}

// Whether ranks of one machine talk through shared memory or not.
TEST(Processes, SharedMemoryHasTheBitsOfGloo) {
  Folder serial;
  TinyRun tiny{.ranks = 1, .micro_batches = 5, .output_dir = serial.run};
  const TinyResult expected = train_tiny(tiny);
  for (const std::string memory : {"true", "false"}) {
    Folder processes;
    tiny.output_dir = processes.run;
    tiny.overrides = {"distributed.strategy=full_shard", "distributed.same_host_memory=" + memory};
    const ProcessResult result = run(launch_command(3, write_config(tiny)));
    ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
    EXPECT_EQ(result.err.find("through shared memory") != std::string::npos, memory == "true") << result.err;
    EXPECT_EQ(read_metrics(processes.run).losses, expected.losses) << memory;
    EXPECT_EQ(weights_digest(processes.run), expected.weights_digest) << memory;
  }
}

// Whoever restarts jobs learns that it would not help.
TEST(Processes, ARunWhoseLossScaleCannotFallEndsWith93) {
  Folder folder;
  TinyRun tiny{.ranks = 2, .micro_batches = 4, .output_dir = folder.run};
  tiny.overrides = {"training.mixed_precision=fp16", "training.initial_scale_power=40",
                    "training.min_loss_scale=274877906944", "training.hysteresis=1"};
  const ProcessResult result = run(launch_command(2, write_config(tiny)));
  EXPECT_EQ(result.exit_code, 93) << result.err;
  EXPECT_NE(result.err.find("TR1303"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("step 3: the gradient of model."), std::string::npos) << result.err;
}

// A rank that fails while the others gather and reduce ends the job as ever.
TEST(Processes, AFailureUnderFullShardIsToldToAllRanks) {
  for (const char* place : {"engine.gather", "engine.reduce"}) {
    Folder folder;
    TinyRun tiny{.ranks = 3, .micro_batches = 4, .output_dir = folder.run};
    tiny.overrides = {"distributed.strategy=full_shard"};
    const ProcessResult result =
        run(launch_command(3, write_config(tiny)), {{"TRIREME_FAILPOINTS", std::string(place) + "=throw@rank1@20"}});
    EXPECT_EQ(result.exit_code, 3) << result.err;
    EXPECT_NE(result.err.find("rank 1"), std::string::npos) << result.err;
  }
}

TEST(Processes, StartedByHandFindEachOtherByMasterAddrAndPort) {
  Folder threads, hand;
  TinyRun run{.ranks = 2, .micro_batches = 4, .steps = 6, .output_dir = threads.run};
  const TinyResult expected = train_tiny(run);
  run.output_dir = hand.run;
  const std::string config = write_config(run);
  const std::string port = std::to_string(20000 + getpid() % 20000);
  std::vector<std::unique_ptr<Process>> ranks;
  for (const std::string rank : {"0", "1"}) {
    ranks.push_back(std::make_unique<Process>(
        std::vector<std::string>{TRIREME_BINARY, "train", "--config", config, "--distributed", "--local_rank", rank},
        std::map<std::string, std::string>{{"RANK", rank},
                                           {"WORLD_SIZE", "2"},
                                           {"LOCAL_RANK", rank},
                                           {"LOCAL_WORLD_SIZE", "2"},
                                           {"MASTER_ADDR", "127.0.0.1"},
                                           {"MASTER_PORT", port}}));
  }
  for (auto& rank : ranks) {
    const ProcessResult result = rank->wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
  }
  EXPECT_EQ(read_metrics(run.output_dir).losses, expected.losses);
  EXPECT_EQ(weights_digest(run.output_dir), expected.weights_digest);
}

TEST(Processes, RunUnderARealTorchrun) {
  Folder threads, torchrun;
  TinyRun tiny{.ranks = 2, .micro_batches = 4, .steps = 6, .output_dir = threads.run};
  const TinyResult expected = train_tiny(tiny);
  tiny.output_dir = torchrun.run;
  const std::vector<std::string> command =
      torchrun_command({TRIREME_BINARY, "train", "--config", write_config(tiny).string(), "--distributed"});
  if (command.empty()) GTEST_SKIP() << kNoTorchrun;
  const ProcessResult result = run(command);
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_EQ(read_metrics(tiny.output_dir).losses, expected.losses);
  EXPECT_EQ(weights_digest(tiny.output_dir), expected.weights_digest);
}

// The signal goes to one rank or to the agent; all ranks save the same step, exit 75, and the rest equals a run never
// stopped.
class StopSignal : public ::testing::TestWithParam<int> {};

TEST_P(StopSignal, SavesAtTheNextStepOnAllRanksAndExits75) {
  Folder threads, stopped;
  TinyRun run{.ranks = 2, .micro_batches = 4, .steps = 40, .output_dir = threads.run};
  const TinyResult expected = train_tiny(run);
  run.output_dir = stopped.run;
  const std::string config = write_config(run);
  Process job(launch_command(2, config), {{"TRIREME_FAILPOINTS", "train.step=sleep(20)@every"}});
  while (read_metrics(run.output_dir).steps.size() < 3) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  job.signal(GetParam());
  const ProcessResult result = job.wait();
  EXPECT_EQ(result.exit_code, 75) << result.out << result.err;
  EXPECT_LT(read_metrics(run.output_dir).steps.size(), 40u);
  EXPECT_EQ(testing::run(launch_command(2, config, {"checkpoint.resume=must"})).exit_code, 0);
  EXPECT_EQ(read_metrics(run.output_dir).losses, expected.losses);
  EXPECT_EQ(weights_digest(run.output_dir), expected.weights_digest);
}

INSTANTIATE_TEST_SUITE_P(Signals, StopSignal, ::testing::Values(SIGTERM, SIGUSR1));

TEST(Faults, AKilledRankEndsTheJobNamedAndLeavesNothingBehind) {
  Folder folder;
  const TinyRun tiny{.ranks = 3, .micro_batches = 6, .steps = 100000, .output_dir = folder.run};
  const std::string marker = "test" + std::to_string(getpid());
  Process job(launch_command(3, write_config(tiny)),
              {{"TRIREME_TEST_MARKER", marker}, {"TRIREME_FAILPOINTS", "train.step=kill@rank1@10"}});
  const auto start = std::chrono::steady_clock::now();
  while (read_metrics(tiny.output_dir).steps.size() < 9 &&
         std::chrono::steady_clock::now() - start < std::chrono::seconds(60)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const auto killed = std::chrono::steady_clock::now();
  const ProcessResult result = job.wait();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - killed;
  EXPECT_LE(took.count(), 20.0) << "2 s promised; tests share machines";
  EXPECT_EQ(result.exit_code, 137);
  EXPECT_NE(result.err.find("rank 1"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("SIGKILL"), std::string::npos) << result.err;
  EXPECT_TRUE(processes_with("TRIREME_TEST_MARKER=" + marker).empty());
}

TEST(Faults, AnExceptionOfOneRankReachesTheOthersWithItsMessage) {
  Folder folder;
  const TinyRun tiny{.ranks = 3, .micro_batches = 6, .steps = 1000, .output_dir = folder.run};
  const ProcessResult result =
      run(launch_command(3, write_config(tiny)), {{"TRIREME_FAILPOINTS", "engine.forward=throw@rank2@20"}});
  EXPECT_EQ(result.exit_code, 3) << result.err;  // that of the failpoint's error
  EXPECT_NE(result.err.find("rank 2"), std::string::npos) << result.err;
  for (const std::string rank : {"0", "1"}) {
    std::ifstream file(folder.run / "logs" / ("rank-" + rank + ".log"));
    const std::string log((std::istreambuf_iterator<char>(file)), {});
    EXPECT_NE(log.find("rank 2"), std::string::npos) << "log of rank " << rank << ":\n" << log;
    EXPECT_NE(log.find("failpoint"), std::string::npos) << "log of rank " << rank << ":\n" << log;
  }
}

TEST(Generate, WritesTheSameTextForTheSameSeed) {
  Folder folder;
  const TinyRun tiny{.micro_batches = 8, .steps = 60, .output_dir = folder.run};
  ASSERT_EQ(run({TRIREME_BINARY, "train", write_config(tiny).string()}).exit_code, 0);
  const auto generate = [&](const std::string& seed, const std::string& temperature) {
    const ProcessResult result =
        run({TRIREME_BINARY, "generate", "--checkpoint", folder.run.string(), "--prompt", "the sea ", "--max-tokens",
             "60", "--seed", seed, "--temperature", temperature, "--top-k", "40", "--top-p", "0.95"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_TRUE(result.out.starts_with("the sea ")) << result.out;
    return result.out;
  };
  EXPECT_EQ(generate("1", "0.8"), generate("1", "0.8"));
  EXPECT_NE(generate("1", "0.8"), generate("2", "0.8"));
  EXPECT_EQ(generate("1", "0"), generate("2", "0"));

  // The same from the export of it, one prompt a line.
  const fs::path exported = folder.run.parent_path() / "exported", prompts = folder.run.parent_path() / "prompts.txt";
  ASSERT_EQ(run({TRIREME_BINARY, "convert", folder.run, exported}).exit_code, 0);
  std::ofstream(prompts) << "the sea \nand\n";
  const ProcessResult both =
      run({TRIREME_BINARY, "generate", folder.run, "--prompts", prompts, "--max-tokens", "60", "--temperature", "0"});
  EXPECT_EQ(both.exit_code, 0) << both.err;
  const std::string first = both.out.substr(0, both.out.find('\n'));
  const std::string text = generate("1", "0").substr(std::string("the sea ").size());
  EXPECT_EQ(nlohmann::json::parse(first).at("text").get<std::string>() + "\n", text);
  EXPECT_EQ(std::count(both.out.begin(), both.out.end(), '\n'), 2) << both.out;
}

TEST(Generate, SaysWhereThereIsNoDevice) {
  const ProcessResult result =
      run({TRIREME_BINARY, "generate", "nowhere", "--device", "cuda"}, {{"CUDA_VISIBLE_DEVICES", "-1"}});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_NE(result.err.find("TR3064"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("there is no CUDA device here: "), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("--device cpu"), std::string::npos) << result.err;
  EXPECT_EQ(result.out, "");
}

TEST(Quickstart, FirstLossIsThatOfAnUntrainedModel) {
  Folder folder;
  const ProcessResult result =
      run({TRIREME_BINARY, "train", std::string(TRIREME_SOURCE_DIR) + "/configs/quickstart.yaml",
           "output_dir=" + folder.run.string(), "data.path=" + tiny_data().string(), "training.max_steps=1",
           "checkpoint.resume=never"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NEAR(read_metrics(folder.run).losses.at(0), std::log(257.0), 0.05);
}

TEST(DryRun, PrintsThePlanAndStartsNothing) {
  Folder folder;
  std::ofstream(folder.folder.path() / "short.yaml")
      << "model: {hidden_size: 64, num_heads: 4, intermediate_size: 128, num_layers: 2}\n"
      << "data: {path: " << tiny_data().string() << ", sequence_length: 16}\n"
      << "training: {max_steps: 5, global_batch_size: 8}\n"
      << "output_dir: " << folder.run.string() << "\n";
  const ProcessResult result =
      run(launch_command(2, folder.folder.path() / "short.yaml", {"training.learning_rate=1e-4", "--dry-run"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const std::string word :
       {"training.learning_rate", "command line", "short.yaml:", "default", "parameters", "tokens per step",
        "learning rate      over 5 steps", "optimizer state", "gradient slots", "2 ranks"}) {
    EXPECT_NE(result.out.find(word), std::string::npos) << word << " is not in\n" << result.out;
  }
  EXPECT_FALSE(fs::exists(folder.run));
}

}  // namespace
}  // namespace trireme::testing
