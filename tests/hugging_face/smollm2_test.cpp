// A real pretrained model: its logits, its training and its export are those of transformers and PyTorch.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/file.h"
#include "comm/communicator.h"
#include "data/prepare.h"
#include "data/tokenizer.h"
#include "hugging_face/support.h"
#include "support/process.h"
#include "support/temporary_folder.h"
#include "train/convert.h"
#include "train/trainer.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kPassages = 20, kLength = 24;

class SmolLm2 : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_transformers()) GTEST_SKIP() << kNoTransformers;
  }
};

// Prose and code of this repository: passages of real text.
std::string text() {
  std::string all;
  for (const char* name : {"README.md", "CONTRIBUTING.md", "docs/architecture.md", "LICENSE"}) {
    all += read_file(fs::path(TRIREME_SOURCE_DIR) / name) + "\n";
  }
  return all;
}

std::vector<std::int32_t> passages() {
  const std::vector<std::int32_t> all = data::load_tokenizer(smollm2())->encode(text());
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < kPassages; ++i) {
    const auto at = all.begin() + i * (std::ssize(all) - kLength) / kPassages;
    ids.insert(ids.end(), at, at + kLength);
  }
  return ids;
}

std::vector<float> oracle_logits(const fs::path& model, const std::vector<std::int32_t>& ids, const fs::path& file) {
  write_values(file, ids);
  ask_oracle({"logits", model, file, std::to_string(kLength)});
  return read_values<float>(file.string() + ".logits");
}

TEST_F(SmolLm2, HasTheLogitsOfTransformersAlsoAfterItsExport) {
  const TemporaryFolder folder;
  const std::vector<std::int32_t> ids = passages();
  const std::vector<float> logits = ForwardModel(smollm2()).last_logits(ids, kLength);
  EXPECT_LT(largest_difference(logits, oracle_logits(smollm2(), ids, folder.path() / "ids")), 1e-4);

  // In shards, and in the element type that it has.
  const fs::path exported = folder.path() / "exported";
  train::convert({.source = smollm2(), .output = exported, .dtype = {}, .max_shard_bytes = 100'000'000});
  EXPECT_EQ(read_file(exported / "tokenizer_config.json"), read_file(smollm2() / "tokenizer_config.json"));
  EXPECT_EQ(largest_difference(ForwardModel(exported).last_logits(ids, kLength), logits), 0);
  EXPECT_LT(largest_difference(logits, oracle_logits(exported, ids, folder.path() / "ids")), 1e-4);
}

// The order in which GGUF keeps the rows of a head: (0, D/2), (1, D/2 + 1), ...
void permute_heads(const ForwardModel::Rows& rows, std::int64_t head_dim) {
  std::vector<float> head(static_cast<std::size_t>(head_dim * rows.columns));
  for (std::int64_t first = 0; first < rows.rows; first += head_dim) {
    for (std::int64_t i = 0; i < head_dim; ++i) {
      const std::int64_t from = first + i / 2 + (i % 2) * head_dim / 2;
      std::copy_n(rows.data + from * rows.stride, rows.columns, head.data() + i * rows.columns);
    }
    for (std::int64_t i = 0; i < head_dim; ++i) {
      std::copy_n(head.data() + i * rows.columns, rows.columns, rows.data + (first + i) * rows.stride);
    }
  }
}

// What a wrong order of the rows of q and k does: the model still talks, but the comparison above must not pass.
TEST_F(SmolLm2, HasOtherLogitsWithQueriesAndKeysPermuted) {
  const std::vector<std::int32_t> ids = passages();
  const ForwardModel model(smollm2());
  const std::vector<float> logits = model.last_logits(ids, kLength);
  for (int layer = 0; layer < 30; ++layer) {
    const std::string name = "model.layers." + std::to_string(layer) + ".self_attn.";
    for (const char* kind : {"q_proj.weight", "k_proj.weight"}) permute_heads(model.rows(name + kind), 64);
  }
  EXPECT_GT(largest_difference(model.last_logits(ids, kLength), logits), 0.1);
}

// From its folder, several prompts at a time, through the binary.
TEST_F(SmolLm2, ContinuesPromptsAsTransformersDoes) {
  const std::vector<std::string> prompts{
      "The capital of France is", "def fibonacci(n):\n",
      "<|im_start|>user\nWhat is rain?<|im_end|>\n<|im_start|>assistant\n",
      "Once upon a time, in a village by the sea, there was an old clock that nobody could read. One day", "1, 2, 3,"};
  constexpr const char* kMaxTokens = "24";
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "prompts.jsonl";
  std::ofstream lines(file);
  std::vector<std::string> question{"generate", smollm2(), kMaxTokens};
  for (const std::string& prompt : prompts) {
    lines << nlohmann::json{{"prompt", prompt}} << "\n";
    question.push_back(prompt);
  }
  lines.close();
  const nlohmann::json expected = nlohmann::json::parse(ask_oracle(question));
  const ProcessResult result = run({TRIREME_BINARY, "generate", smollm2(), "--prompts", file, "--batch-size", "3",
                                    "--temperature", "0", "--max-new-tokens", kMaxTokens});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::istringstream out(result.out);
  std::size_t count = 0;
  for (std::string line; std::getline(out, line); ++count) {
    const nlohmann::json answer = nlohmann::json::parse(line);
    EXPECT_EQ(answer.at("prompt"), prompts.at(count));
    EXPECT_EQ(answer.at("text"), expected.at(count)) << "after: " << prompts[count];
  }
  EXPECT_EQ(count, prompts.size());
}

struct EnoughSteps {};

TEST_F(SmolLm2, IsTrainedAsPlainPyTorchTrainsIt) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "text.txt") << text();
  data::PrepareOptions prepare;
  prepare.inputs = {folder.path() / "text.txt"};
  prepare.output = folder.path() / "tokens";
  prepare.tokenizer = smollm2();
  data::prepare(prepare);
  const config::Plan plan = config::parse_plan(
      "output_dir: " + (folder.path() / "run").string() + "\nmodel: {path: " + smollm2().string() +
          "}\ndata: {path: " + (folder.path() / "tokens").string() +
          ", sequence_length: 16}\n"
          "training: {max_steps: 40, micro_batch_size: 1, global_batch_size: 1, learning_rate: 1e-4, warmup_steps: 0, "
          "lr_scheduler: constant, gradient_clipping: 1.0, weight_decay: 0.1, adam_beta1: 0.9, adam_beta2: 0.95, "
          "adam_eps: 1e-8}\n",
      "smollm2.yaml", {});

  std::vector<std::int32_t> batches;
  std::vector<double> losses;
  const auto comm = comm::make_single();
  train::TrainerOptions options{.comm = comm.get(), .console = false};
  options.on_batches = [&](const data::StepBatches& step, std::int64_t) {
    const Batch& batch = step.rounds.front();
    batches.insert(batches.end(), batch.ids, batch.ids + batch.shape.tokens());
    batches.insert(batches.end(), batch.labels, batch.labels + batch.shape.tokens());
  };
  options.on_step = [&](const monitor::StepRecord& record) {
    losses.push_back(record.loss);
    if (losses.size() == 20) throw EnoughSteps();  // before it saves 1.6 GB
  };
  EXPECT_THROW(train::Trainer(plan, options).run(), EnoughSteps);

  write_values(folder.path() / "batches", batches);
  const nlohmann::json theirs = nlohmann::json::parse(ask_oracle(
      {"train", smollm2(), folder.path() / "batches",
       R"({"batch": 1, "length": 16, "learning_rate": 1e-4, "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "clip": 1.0})"}));
  ASSERT_EQ(theirs.size(), losses.size());
  for (std::size_t i = 0; i < losses.size(); ++i)
    EXPECT_NEAR(losses[i], theirs[i].get<double>(), 1e-4) << "step " << i + 1;
}

}  // namespace
}  // namespace trireme::testing
