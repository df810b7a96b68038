// Each wrong input gives one clear error with a code, a place and a way out, the right exit code, and leaves nothing
// half-written.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>

#include "cli/run_files.h"
#include "support/temporary_folder.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

// The folder of one case: a good configuration `run.yaml`, a copy of good data in tokens/, output into run/.
class Case {
 public:
  explicit Case(int ranks = 1) {
    fs::copy(tiny_data(), tokens(), fs::copy_options::recursive);
    TinyRun tiny{.ranks = ranks, .steps = 4, .output_dir = output()};
    tiny.overrides = {"data.path=" + tokens().string()};
    config = config::to_yaml(tiny_plan(tiny));
    write(path() / "run.yaml", config);
  }
  const fs::path& path() const { return folder_.path(); }
  fs::path tokens() const { return path() / "tokens"; }
  fs::path output() const { return path() / "run"; }
  void write(const fs::path& file, const std::string& text) const { std::ofstream(file, std::ios::binary) << text; }
  void edit_config(const std::string& from, const std::string& to) const {
    const std::size_t at = config.find(from);
    ASSERT_NE(at, std::string::npos) << from << " is not in\n" << config;
    write(path() / "run.yaml", std::string(config).replace(at, from.size(), to));
  }
  std::string config;

 private:
  TemporaryFolder folder_;
};

struct Expectation {
  int exit_code;
  std::vector<std::string> words;  // all of them in the error
};

std::vector<std::string> everything_below(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string name = fs::relative(entry.path(), folder).string();
    if (name != "run" && !name.starts_with("run/logs")) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

// "error TR2104: "
int count_errors(const std::string& text) {
  int count = 0;
  for (std::size_t at = 0; (at = text.find("error TR", at)) != std::string::npos; ++at) ++count;
  return count;
}

// Runs it; whatever files the case has before, it has after, and no others but logs.
void expect_error(const Case& c, std::vector<std::string> arguments, const Expectation& expected,
                  const std::map<std::string, std::string>& environment = {}) {
  const auto before = everything_below(c.path());
  arguments.insert(arguments.begin(), TRIREME_BINARY);
  const ProcessResult result = run(arguments, environment);
  EXPECT_EQ(result.exit_code, expected.exit_code) << result.out << result.err;
  EXPECT_EQ(count_errors(result.err), 1) << "exactly one error is due:\n" << result.err;
  for (const std::string& word : expected.words) {
    EXPECT_NE(result.err.find(word), std::string::npos) << word << " is not in\n" << result.err;
  }
  EXPECT_EQ(everything_below(c.path()), before);
}

std::vector<std::string> train(const Case& c, const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments{"train", (c.path() / "run.yaml").string()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::vector<std::string> launch(const Case& c, int ranks, const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = train(c, more);
  arguments.insert(arguments.begin(), {"launch", "--nproc-per-node", std::to_string(ranks)});
  return arguments;
}

TEST(WrongInputs, OfTheCommandLine) {
  const Case c;
  expect_error(c, {"trian"}, {2, {"trian"}});
  expect_error(c, {"convert"}, {2, {"SOURCE"}});
  expect_error(c, {"train"}, {2, {"configuration file"}});
  expect_error(c, {"train", (c.path() / "none.yaml").string()}, {2, {"none.yaml"}});
  expect_error(c, train(c, {"--no-such-flag"}), {2, {"no-such-flag"}});
  expect_error(c, {"launch", "--nproc-per-node", "0", "train", "x.yaml"}, {2, {"nproc-per-node"}});
  expect_error(c, {"launch", "--nproc-per-node", "2", "--nnodes", "2", "train", "x.yaml"}, {2, {"not yet"}});
}

TEST(WrongInputs, OfTheConfiguration) {
  const Case c;
  expect_error(c, train(c, {"training.learning_rat=1"}),
               {2, {"command line", "learning_rat", "training.learning_rate"}});
  expect_error(c, train(c, {"training.max_steps=many"}), {2, {"training.max_steps", "many"}});
  expect_error(c, train(c, {"training.max_steps=-3"}), {2, {"training.max_steps", "-3"}});
  expect_error(c, train(c, {"training.max_steps=3", "training.max_steps=4"}), {2, {"training.max_steps"}});
  expect_error(c, train(c, {"distributed.strategy=hybrid_shard", "distributed.dp_shard=2"}),
               {2, {"dp_shard", "1 ranks"}});
  expect_error(c, train(c, {"distributed.strategy=zero3", "distributed.dp_shard=3"}), {2, {"dp_shard", "1 ranks"}});
  expect_error(c, train(c, {"distributed.strategy=zero2", "distributed.dp_shard=2", "distributed.dp_replicate=2"}),
               {2, {"2 x dp_shard 2 = 4"}});
  expect_error(c, train(c, {"distributed.dp_replicate=2"}), {2, {"dp_replicate", "shards nothing"}});
  expect_error(c, train(c, {"distributed.num_processes=4"}), {2, {"num_processes", "is 4", "1 ranks"}});
  expect_error(c, train(c, {"distributed.tp=2"}), {2, {"distributed.tp", "not yet"}});
  expect_error(c, train(c, {"training.mixed_precision=fp8"}), {2, {"fp8", "not yet"}});
  expect_error(c, train(c, {"training.micro_batch_size=3"}), {2, {"micro_batch_size", "3", "global_batch_size"}});
  expect_error(c, train(c, {"model.num_heads=5"}), {2, {"num_heads"}});
  expect_error(c, train(c, {"model.vocab_size=100"}), {2, {"vocab_size", "100", "257"}});
  expect_error(c, train(c, {"data.sequence_length=4096"}), {2, {"sequence_length", "4096"}});
  expect_error(c, launch(c, 5), {2, {"5 ranks", "4"}});
}

TEST(WrongInputs, OfTheConfigurationFileNameLineAndColumn) {
  const Case c;
  c.edit_config("max_steps: 4", "max_step: 4");
  expect_error(c, launch(c, 2), {2, {"run.yaml:", "max_step", "max_steps"}});
  c.edit_config("max_steps: 4", "max_steps: 4\n  max_steps: 5");
  expect_error(c, train(c), {2, {"run.yaml:", "max_steps"}});
  c.edit_config("max_steps: 4", "max_steps: [4");
  expect_error(c, train(c), {2, {"run.yaml:"}});
  c.edit_config("max_steps: 4", "max_steps: &a 4\n  seed: *a");
  expect_error(c, train(c), {2, {"run.yaml:"}});
  c.write(c.path() / "run.yaml", "");
  expect_error(c, train(c), {2, {"run.yaml"}});
}

TEST(WrongInputs, OfTheData) {
  const Case c;
  const auto prepare = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"data", "prepare"});
    arguments.insert(arguments.end(), {"--output", (c.path() / "prepared").string()});
    return arguments;
  };
  expect_error(c, train(c, {"data.path=" + (c.path() / "nowhere").string()}), {4, {"nowhere"}});
  expect_error(c, prepare({(c.path() / "nothing.txt").string()}), {4, {"nothing.txt"}});
  c.write(c.path() / "bad.jsonl", "{\"text\": \"good\"}\n{\"text\": \"bad\n");
  expect_error(c, prepare({(c.path() / "bad.jsonl").string()}), {4, {"bad.jsonl:2", "JSON"}});
  c.write(c.path() / "bad.jsonl", "{\"txt\": \"good\"}\n");
  expect_error(c, prepare({(c.path() / "bad.jsonl").string()}), {4, {"bad.jsonl:1", "text"}});
  c.write(c.path() / "nul.txt", std::string("a\0b", 3));
  expect_error(c, prepare({(c.path() / "nul.txt").string()}), {4, {"nul.txt", "NUL"}});
  c.write(c.path() / "latin1.txt", "caf\xe9");
  expect_error(c, prepare({(c.path() / "latin1.txt").string()}), {4, {"latin1.txt", "UTF-8"}});
  fs::create_directories(c.path() / "empty");
  expect_error(c, prepare({(c.path() / "empty").string()}), {4, {"empty"}});
}

TEST(WrongInputs, OfDamagedData) {
  {
    const Case c;
    fs::resize_file(c.tokens() / "manifest.json", 40);
    expect_error(c, train(c), {4, {"manifest.json"}});
  }
  for (const auto& entry : fs::directory_iterator(tiny_data())) {
    if (!entry.path().filename().string().starts_with("train-")) continue;
    const Case flipped, missing;
    const std::string name = entry.path().filename();
    std::fstream file(flipped.tokens() / name, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(1000);
    file.put('\xee');
    file.close();
    const ProcessResult result = run({TRIREME_BINARY, "train", (flipped.path() / "run.yaml").string()});
    EXPECT_EQ(result.exit_code, 4) << result.err;
    EXPECT_NE(result.err.find(name), std::string::npos) << result.err;
    fs::remove(missing.tokens() / name);
    expect_error(missing, train(missing), {4, {name}});
  }
}

TEST(WrongInputs, OfTheTokenizer) {
  const Case c;
  c.write(c.path() / "text.txt", "some text");
  const auto prepare = [&](const std::string& tokenizer) {
    return std::vector<std::string>{
        "data",        "prepare", (c.path() / "text.txt").string(), "--output", (c.path() / "prepared").string(),
        "--tokenizer", tokenizer};
  };
  expect_error(c, prepare("no-such-tokenizer"), {4, {"no-such-tokenizer"}});
  fs::create_directories(c.path() / "tok");
  c.write(c.path() / "tok/tokenizer.json", "{\"model\": {\"type\": \"WordPiece\"}}");
  expect_error(c, prepare((c.path() / "tok").string()), {4, {"tokenizer.json", "not supported"}});
  c.write(c.path() / "tok/tokenizer.json", "{\"model\": ");
  expect_error(c, prepare((c.path() / "tok").string()), {4, {"tokenizer.json"}});
  fs::remove(c.path() / "tok/tokenizer.json");
  c.write(c.path() / "tok/vocab.json", "{\"a\": 0}");
  expect_error(c, prepare((c.path() / "tok").string()), {4, {"merges.txt"}});
}

TEST(WrongInputs, OfTheCheckpoint) {
  const Case c;
  expect_error(c, train(c, {"checkpoint.resume=must"}), {5, {"resume"}});
  expect_error(c, {"generate", "--checkpoint", c.path().string()}, {5, {"checkpoint"}});
  ASSERT_EQ(run({TRIREME_BINARY, "train", (c.path() / "run.yaml").string()}).exit_code, 0);
  const fs::path manifest = c.output() / "checkpoints/step-00000004/manifest.json";
  const std::uintmax_t size = fs::file_size(manifest);
  expect_error(c, train(c, {"training.max_steps=6", "training.global_batch_size=16"}),
               {2, {"global_batch_size", "16", "8"}});
  fs::resize_file(manifest, size - 10);
  expect_error(c, train(c, {"training.max_steps=6"}), {5, {"manifest.json"}});
  expect_error(c, {"generate", "--checkpoint", c.output().string()}, {5, {"manifest.json"}});
}

// A budget that does not hold the plan names what would fit, or says that nothing does.
TEST(WrongInputs, OfTheMemoryBudget) {
  const Case c;
  const std::vector<std::string> larger{"model.num_layers=8", "training.micro_batch_size=4"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), larger.begin(), larger.end());
    return more;
  };
  const auto planned = [&](const std::vector<std::string>& command, const std::vector<std::string>& more) {
    std::vector<std::string> arguments{TRIREME_BINARY};
    for (const auto& list : {command, with(more), {"--dry-run"}}) {
      arguments.insert(arguments.end(), list.begin(), list.end());
    }
    const std::string out = run(arguments).out;
    const std::size_t at = out.find("  all ");
    return at == std::string::npos ? 0.0 : std::stod(out.substr(at + 6)) * (1 << 20);
  };
  const std::string config = (c.path() / "run.yaml").string();
  const std::vector<std::string> alone{"train", config};
  const std::vector<std::string> both{"launch", "--nproc-per-node", "2", "train", config};
  const auto budget = [](double bytes) { return "training.memory_budget=" + std::to_string(std::llround(bytes)); };
  const auto expect_refusal = [&](const std::vector<std::string>& command, double bytes, const std::string& remedy) {
    std::vector<std::string> arguments = command;
    for (const std::string& word : with({budget(bytes)})) arguments.push_back(word);
    expect_error(c, arguments, {2, {"TR2280", "MiB", remedy}});
  };
  const double kept = planned(alone, {}), full = planned(alone, {"training.gradient_checkpointing=full"});
  ASSERT_LT(full, kept);
  expect_refusal(alone, (kept + full) / 2, "gradient_checkpointing=");
  expect_refusal(alone, 1000, "no sharding, recomputing or offloading fits");
  const double offloaded = planned(alone, {"distributed.offload_optimizer=cpu"});
  ASSERT_LT(offloaded, full);
  expect_refusal(alone, (full + offloaded) / 2, "distributed.offload_optimizer=cpu needs");
  expect_refusal(both, planned(both, {}) - 20000, "distributed.strategy=zero1 needs");
}

TEST(WrongInputs, OfAPlan) {
  const Case c;
  const auto plan = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"plan", (c.path() / "run.yaml").string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  expect_error(c, {"plan"}, {2, {"TR2002", "trireme plan"}});
  expect_error(c, plan({"--ranks", "0"}), {2, {"TR2011", "--ranks", "0"}});
  expect_error(c, plan({"--ranks", "two"}), {2, {"--ranks", "two"}});
  expect_error(c, plan({"--ranks", "5"}), {2, {"5 ranks", "4"}});
  expect_error(c, plan({"--ranks", "2", "--rank", "2"}), {2, {"TR2012", "--rank", "0 to 1"}});
  expect_error(c, plan({"--rank", "-1"}), {2, {"TR2012", "-1"}});
  expect_error(c, plan({"training.max_step=3"}), {2, {"max_step"}});
  expect_error(c, plan({"data.path=" + (c.path() / "nowhere").string()}), {4, {"nowhere"}});
  expect_error(c, plan({"--schedule", (c.path() / "no/such/trace.json").string()}), {3, {"TR3011", "no/such"}});
  expect_error(c, plan({"--rates", (c.path() / "absent.json").string()}), {2, {"TR2290", "absent.json"}});
  c.write(c.path() / "rates.json", "{\"flops_per_s\": -1}");
  expect_error(c, plan({"--rates", (c.path() / "rates.json").string()}), {2, {"TR2290", "flops_per_s is -1"}});
}

// One error of the launcher, not one from each rank.
TEST(WrongInputs, OfWhatIsLaunched) {
  const Case c;
  expect_error(c, launch(c, 4, {"distributed.strategy=hybrid_shard", "distributed.dp_shard=3"}),
               {2, {"TR2211", "4 ranks", "2 x 2"}});
}

TEST(WrongInputs, OfPrompts) {
  const Case c;
  ASSERT_EQ(run({TRIREME_BINARY, "train", (c.path() / "run.yaml").string()}).exit_code, 0);
  const auto prompts = [&](const std::string& name, const std::string& text) {
    c.write(c.path() / name, text);
    return std::vector<std::string>{"generate", c.output().string(), "--prompts", (c.path() / name).string()};
  };
  expect_error(c, {"generate", c.output().string(), "--prompts", (c.path() / "absent.txt").string()},
               {3, {"absent.txt"}});
  expect_error(c, prompts("none.txt", ""), {2, {"none.txt", "no prompt"}});
  expect_error(c, prompts("cut.jsonl", "{\"prompt\": \"a\"}\n{\"prompt\": "), {2, {"cut.jsonl:2"}});
  expect_error(c, prompts("other.jsonl", "{\"text\": \"a\"}\n"), {2, {"other.jsonl:1", "prompt"}});
  expect_error(c, prompts("number.jsonl", "{\"prompt\": 3}\n"), {2, {"number.jsonl:1", "prompt"}});
  auto two = prompts("two.txt", "a\n");
  two.insert(two.end(), {"--prompt", "b"});
  expect_error(c, two, {2, {"--prompt"}});
  expect_error(c, {"generate", (c.path() / "nowhere").string()}, {2, {"nowhere"}});
}

TEST(WrongInputs, OfTheEnvironment) {
  const Case c;
  expect_error(c, train(c), {3, {"WORLD_SIZE"}}, {{"RANK", "0"}});
  expect_error(c, train(c), {3, {"RANK", "abc"}}, {{"RANK", "abc"}, {"WORLD_SIZE", "2"}});
  expect_error(c, train(c), {3, {"RANK", "2"}},
               {{"RANK", "2"},
                {"WORLD_SIZE", "2"},
                {"LOCAL_RANK", "0"},
                {"MASTER_ADDR", "127.0.0.1"},
                {"MASTER_PORT", "29500"}});
  expect_error(c, train(c), {3, {"MASTER_PORT", "tcp://"}},
               {{"RANK", "0"},
                {"WORLD_SIZE", "2"},
                {"LOCAL_RANK", "0"},
                {"LOCAL_WORLD_SIZE", "2"},
                {"MASTER_ADDR", "127.0.0.1"},
                {"MASTER_PORT", "tcp://10.0.0.1:1"}});
  expect_error(c, train(c, {"--local_rank", "1"}), {3, {"LOCAL_RANK"}});
  expect_error(c, train(c, {"--distributed"}), {3, {"WORLD_SIZE"}});
  expect_error(c, train(c), {3, {"TRIREME_CPU_LEVEL", "sse9"}}, {{"TRIREME_CPU_LEVEL", "sse9"}});
  expect_error(c, train(c), {3, {"TRIREME_FAILPOINTS"}}, {{"TRIREME_FAILPOINTS", "nonsense"}});
}

}  // namespace
}  // namespace trireme::testing
