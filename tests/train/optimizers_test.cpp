// Every optimizer under every strategy is its serial run, is resumed to the same bits, and keeps what its row says.
#include <gtest/gtest.h>

#include <map>

#include "engine/engine.h"
#include "models/model.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"
#include "train/tiny_run.h"

namespace trireme::testing {
namespace {

struct Choice {
  std::string name;
  std::vector<std::string> overrides;
  std::int64_t arrays;  // fp32, an element
  std::vector<std::string> prefixes;
};

void PrintTo(const Choice& choice, std::ostream* out) {
  *out << choice.name;
}

const std::vector<Choice> kChoices = {
    {"adamw", {}, 2, {"exp_avg/", "exp_avg_sq/"}},
    {"adam", {"training.optimizer=adam", "training.weight_decay=0.01"}, 2, {"exp_avg/", "exp_avg_sq/"}},
    {"sgd", {"training.optimizer=sgd", "training.learning_rate=0.3"}, 0, {}},
    {"sgd_momentum",
     {"training.optimizer=sgd", "training.momentum=0.8", "training.nesterov=true", "training.weight_decay=0.01",
      "training.learning_rate=0.1"},
     1,
     {"momentum_buffer/"}},
    {"adagrad",
     {"training.optimizer=adagrad", "training.initial_accumulator_value=1e-3", "training.learning_rate=0.02"},
     1,
     {"sum/"}},
    {"lion", {"training.optimizer=lion", "training.learning_rate=1e-3"}, 1, {"exp_avg/"}},
};

class Optimizers : public ::testing::TestWithParam<Choice> {};

TEST_P(Optimizers, HaveTheBitsOfTheSerialRunUnderEveryStrategy) {
  for (const bool bf16 : {false, true}) {
    TinyRun run{.micro_batches = 5, .steps = 8, .bf16 = bf16, .overrides = GetParam().overrides};
    const TinyResult serial = train_tiny(run);
    EXPECT_LT(serial.losses.back(), serial.losses.front() - 0.1) << "it learns";
    run.ranks = 3;
    for (const char* strategy : {"ddp", "zero1", "zero2", "zero3", "shard_grad_op"}) {
      SCOPED_TRACE(std::string(strategy) + (bf16 ? ", bf16" : ""));
      const TinyResult parallel = train_tiny(with(run, {std::string("distributed.strategy=") + strategy}));
      EXPECT_EQ(parallel.losses, serial.losses);
      EXPECT_EQ(parallel.gradient_norms, serial.gradient_norms);
      EXPECT_EQ(parallel.weights_digest, serial.weights_digest);
      EXPECT_TRUE(parallel.all_ranks_equal);
    }
  }
}

TEST_P(Optimizers, ResumedInMidRunEqualNeverStopped) {
  const TinyRun base{.micro_batches = 5, .steps = 8, .overrides = GetParam().overrides};
  const TinyResult never_stopped = train_tiny(base);
  const TemporaryFolder folder;
  const std::pair<const char*, int> legs[] = {{"zero2", 3}, {"ddp", 2}, {"zero3", 3}};
  std::vector<double> losses;
  TinyResult last;
  for (std::int64_t leg = 0; leg < 3; ++leg) {
    TinyRun run = base;
    run.ranks = legs[leg].second;
    run.output_dir = folder.path() / "run";
    if (leg < 2) run.stop_at = [leg](int, std::int64_t step) { return step == 3 * leg + 2; };
    last = train_tiny(with(run, {std::string("distributed.strategy=") + legs[leg].first}));
    losses.insert(losses.end(), last.losses.begin(), last.losses.end());
  }
  EXPECT_EQ(losses, never_stopped.losses);
  EXPECT_EQ(last.weights_digest, never_stopped.weights_digest);
}

TEST_P(Optimizers, KeepAsManyBytesAsTheyHaveArrays) {
  LlamaConfig config;
  config.vocabulary = 1000, config.hidden_size = 128, config.intermediate_size = 256, config.num_layers = 3;
  config.num_heads = 4, config.num_key_value_heads = 2, config.max_positions = 64;
  const TemporaryFolder folder;
  const config::Plan plan = tiny_plan({.output_dir = folder.path() / "run", .overrides = GetParam().overrides});
  const train::ResolvedRun run = train::resolve(plan, {1000, 1000}, 1);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Chain chain = make_chain(config, dtype);
    for (const int ranks : {1, 2, 4}) {
      const engine::EngineOptions options{.micro_batch = {1, 64},
                                          .split = {ranks, ranks},
                                          .sharding = {.gradients = true, .optimizer = true},
                                          .optimizer = run.engine.optimizer};
      const engine::StepPlan step = engine::plan_step(chain, options, 0);
      std::int64_t numel = 0;
      for (const StorageGroup& group : step.groups) numel += group.numel;
      const std::int64_t arrays = GetParam().arrays + (dtype == DType::f32 ? 0 : 1);  // the master's
      const auto owner = step.memory_by_owner.find("optimizer state");
      EXPECT_EQ(owner == step.memory_by_owner.end() ? 0 : owner->second, numel * 4 * arrays / ranks);
    }
  }
}

std::map<std::string, std::uintmax_t> files_below(const std::filesystem::path& folder) {
  std::map<std::string, std::uintmax_t> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    files[entry.path().string()] = entry.is_regular_file() ? entry.file_size() : 0;
  }
  return files;
}

TEST_P(Optimizers, GoOnWithNoOthersCheckpoint) {
  const TemporaryFolder folder;
  TinyRun run{.ranks = 2, .steps = 2, .output_dir = folder.path() / "run", .overrides = GetParam().overrides};
  train_tiny(run);
  const auto before = files_below(folder.path());
  run.steps = 4;
  for (const Choice& other : kChoices) {
    if (other.name == GetParam().name) continue;
    run.overrides = other.overrides;
    const std::string text = expect_error(2223, [&] { train_tiny(run); });
    EXPECT_NE(text.find("a run keeps its optimizer"), std::string::npos) << text;
    EXPECT_EQ(files_below(folder.path()), before) << "nothing is written";
  }
  run.overrides = GetParam().overrides;
  EXPECT_EQ(train_tiny(run).last_step, 4);
}

TEST_P(Optimizers, SaveTheirStateUnderItsNames) {
  const TemporaryFolder folder;
  TinyRun run{.steps = 1, .output_dir = folder.path() / "run", .overrides = GetParam().overrides};
  train_tiny(run);
  const checkpoint::Reader reader(run.output_dir / "checkpoints/step-00000001");
  std::size_t masters = 0;
  std::map<std::string, std::size_t> arrays;
  for (const checkpoint::LogicalState& tensor : reader.manifest().tensors) {
    const std::size_t slash = tensor.name.find('/');
    if (slash == std::string::npos) {
      ++masters;
    } else {
      ++arrays[tensor.name.substr(0, slash + 1)];
    }
  }
  EXPECT_EQ(arrays.size(), GetParam().prefixes.size());
  for (const std::string& prefix : GetParam().prefixes) EXPECT_EQ(arrays[prefix], masters) << prefix;
}

INSTANTIATE_TEST_SUITE_P(All, Optimizers, ::testing::ValuesIn(kChoices),
                         [](const auto& info) { return info.param.name; });

// Sums that start high leave next to nothing of the steps.
TEST(Adagrad, StartsWithItsInitialSums) {
  const auto losses = [](const char* value) {
    return train_tiny(with({.steps = 3}, {"training.optimizer=adagrad", "training.learning_rate=0.02",
                                          std::string("training.initial_accumulator_value=") + value}))
        .losses;
  };
  const std::vector<double> still = train_tiny(with({.steps = 3}, {"training.learning_rate=0"})).losses;
  EXPECT_NEAR(losses("1e12")[2], still[2], 1e-5);
  EXPECT_GT(std::abs(losses("0")[2] - still[2]), 1e-2);
}

}  // namespace
}  // namespace trireme::testing
