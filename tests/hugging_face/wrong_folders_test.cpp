// A model folder that is not right gives one clear error before anything is written; a right one is trained from,
// exported and gone on from.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <functional>

#include "base/file.h"
#include "checkpoint/model_export.h"
#include "hugging_face/support.h"
#include "support/expect_error.h"
#include "support/oracle.h"
#include "support/process.h"
#include "support/temporary_folder.h"
#include "train/convert.h"
#include "train/dry_run.h"
#include "train/tiny_run.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

// A folder with the weights of a small Llama, and a plan that starts from it.
class Case {
 public:
  explicit Case(std::int64_t vocabulary = 300) {
    const LlamaConfig config{.vocabulary = vocabulary,
                             .hidden_size = 16,
                             .intermediate_size = 24,
                             .num_layers = 2,
                             .num_heads = 4,
                             .num_key_value_heads = 2,
                             .head_dim = 4,
                             .max_positions = 32};
    const Chain chain = make_chain(config, DType::f32);
    checkpoint::ModelExport model;
    model.config_json = to_hugging_face_config(config, DType::f32, {.bos = 1, .eos = 2, .pad = -1});
    model.parameters = chain.parameters;
    model.read = [](const LogicalTensor& tensor, float* out) {
      for (std::int64_t i = 0; i < tensor.box.numel(); ++i) out[i] = static_cast<float>((i * 37) % 101 - 50) / 500;
    };
    model.dtype = DType::bf16;
    checkpoint::export_model(folder(), model);
  }
  fs::path folder() const { return temporary_.path() / "model"; }
  fs::path weights() const { return folder() / "model.safetensors"; }
  fs::path run() const { return temporary_.path() / "run"; }
  std::string yaml(const std::string& more = "") const {
    return "output_dir: " + run().string() + "\nmodel: {path: " + folder().string() + more +
           "}\ndata: {path: " + tiny_data().string() +
           ", sequence_length: 16}\n"
           "training: {max_steps: 2, micro_batch_size: 2, global_batch_size: 2, learning_rate: 1e-3}\n";
  }
  config::Plan plan(const std::vector<std::string>& overrides = {}, const std::string& more = "") const {
    return config::parse_plan(yaml(more), "run.yaml", overrides);
  }
  void write(const char* name, const std::string& text) const {
    std::ofstream(folder() / name, std::ios::binary) << text;
  }
  void replace(const fs::path& file, const std::string& from, const std::string& to) const {
    std::string text = read_file(file);
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    std::ofstream(file, std::ios::binary) << text.replace(at, from.size(), to);
  }
  void edit_config(const std::string& from, const std::string& to) const {
    replace(folder() / "config.json", from, to);
  }
  void edit_header(const std::string& from, const std::string& to) const {
    ASSERT_EQ(from.size(), to.size());
    replace(weights(), from, to);
  }

 private:
  TemporaryFolder temporary_;
};

struct Wrong {
  int code;
  const char* word;
  std::function<void(const Case&)> spoil;
  std::vector<std::string> overrides = {};
  const char* more = "";
};

TEST(WrongModelFolders, GiveOneClearErrorAndWriteNothing) {
  const std::vector<Wrong> cases = {
      {2250, "no such folder", [](const Case& c) { fs::remove_all(c.folder()); }},
      {2250, "hf download no-org/no-model", [](const Case&) {}, {"model.path=no-org/no-model"}},
      {5061, "has no config.json", [](const Case& c) { fs::remove(c.folder() / "config.json"); }},
      {5061, "has neither model.safetensors", [](const Case& c) { fs::remove(c.weights()); }},
      {5064, "tools/import_torch.py", [](const Case& c) { fs::rename(c.weights(), c.folder() / "pytorch_model.bin"); }},
      {5060, "no JSON", [](const Case& c) { c.edit_config("{", "{{"); }},
      {5060, "hidden_size", [](const Case& c) { c.edit_config("\"hidden_size\": 16", "\"hidden_size\": \"16\""); }},
      {5060, "larger than any", [](const Case& c) { c.write("config.json", std::string(2 << 20, ' ')); }},
      {2260, "mamba", [](const Case& c) { c.edit_config("\"llama\"", "\"mamba\""); }},
      {2260, "new_trick", [](const Case& c) { c.edit_config("{", "{\"new_trick\": 1,"); }},
      {5066, "[300, 16]", [](const Case& c) { c.edit_config("300", "400"); }},  // vocabulary larger than the embedding
      {5066, "mlp.down_proj", [](const Case& c) { c.edit_header("[16,24]", "[24,16]"); }},
      {5065, "lm_head.weight",
       [](const Case& c) { c.edit_config("\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false"); }},
      {5065, "model.norm.weight is missing",
       [](const Case& c) { c.edit_header("model.norm.weight", "model.mend.weight"); }},
      {5068, "model.layers.1.",
       [](const Case& c) { c.edit_config("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1"); }},
      {5021, "header", [](const Case& c) { c.write("model.safetensors", std::string(8, '\xff') + "{}"); }},
      {5021, "bytes", [](const Case& c) { c.write("model.safetensors", "ab"); }},
      {5024, "outside", [](const Case& c) { fs::resize_file(c.weights(), fs::file_size(c.weights()) - 100); }},
      {5022, "JSON", [](const Case& c) { c.edit_header("{\"__meta", "{{__meta"); }},
      {5020, "F8_E", [](const Case& c) { c.edit_header("\"BF16\"", "\"F8_E\""); }},
      {5026, "twice", [](const Case& c) { c.edit_header("layers.1.input_layernorm", "layers.0.input_layernorm"); }},
      {5062, "../",
       [](const Case& c) {
         fs::remove(c.weights());
         c.write("model.safetensors.index.json", R"({"weight_map": {"a": "../a.safetensors"}})");
       }},
      {5063, "is missing",
       [](const Case& c) {
         fs::rename(c.weights(), c.folder() / "model-00001-of-00002.safetensors");
         c.write("model.safetensors.index.json", R"({"weight_map": {"a": "model-00002-of-00002.safetensors"}})");
       }},
      {2110, "model.num_layers is 3", [](const Case&) {}, {}, ", num_layers: 3"},
      {2110, "model.tie_word_embeddings is false", [](const Case&) {}, {}, ", tie_word_embeddings: false"},
      {2104, "32 positions", [](const Case&) {}, {"data.sequence_length=33"}},
  };
  for (const Wrong& wrong : cases) {
    SCOPED_TRACE(wrong.word);
    const Case c;
    wrong.spoil(c);
    const std::string text =
        expect_error(wrong.code, [&] { train::describe_run(c.plan(wrong.overrides, wrong.more), 1); });
    EXPECT_NE(text.find(wrong.word), std::string::npos) << text;
    EXPECT_NE(text.find('\n'), std::string::npos) << "no remedy: " << text;
    EXPECT_FALSE(fs::exists(c.run()));
    if (wrong.code < 5000) continue;
    const fs::path output = c.run() / "exported";
    expect_error(wrong.code, [&] { train::convert({.source = c.folder(), .output = output, .dtype = {}}); });
    EXPECT_FALSE(fs::exists(c.run()));
  }
  const Case small(200);  // below the data's tokenizer
  EXPECT_NE(expect_error(2240, [&] { train::describe_run(small.plan(), 1); }).find("vocabulary of 200"),
            std::string::npos);
}

TEST(WrongModelFolders, TheBinaryExitsWithTheKindOfError) {
  const Case c;
  std::ofstream(c.folder().parent_path() / "run.yaml") << c.yaml();
  const std::string config = c.folder().parent_path() / "run.yaml";
  EXPECT_EQ(run({TRIREME_BINARY, "train", config, "model.path=no/model"}).exit_code, 2);
  fs::resize_file(c.weights(), 1000);
  EXPECT_EQ(run({TRIREME_BINARY, "train", config}).exit_code, 5);
  EXPECT_EQ(run({TRIREME_BINARY, "convert", c.folder(), c.run()}).exit_code, 5);
  EXPECT_FALSE(fs::exists(c.run()));
}

TEST(ModelFolders, ARunStartsFromTheWeightsAndExportsWhatItLearnt) {
  const Case c;
  const std::string config = c.folder().parent_path() / "run.yaml";
  std::ofstream(config) << c.yaml();
  const ProcessResult dry = run({TRIREME_BINARY, "train", config, "--dry-run"});
  EXPECT_NE(dry.out.find("weights            " + c.folder().string() + " (llama, 1 file of"), std::string::npos)
      << dry.out;
  EXPECT_EQ(run({TRIREME_BINARY, "train", config}).exit_code, 0);

  // The weights have moved a little from where they started, in every tensor; the folder itself is not needed any more.
  const fs::path exported = c.folder().parent_path() / "exported";
  const ProcessResult converted = run({TRIREME_BINARY, "convert", c.run(), exported});
  ASSERT_EQ(converted.exit_code, 0) << converted.err;
  const Chain chain = make_chain(checkpoint::read_model_config(exported).model, DType::f32);
  EXPECT_EQ(checkpoint::read_model_config(exported).model, checkpoint::read_model_config(c.folder()).model);
  const checkpoint::ModelWeights before(c.folder(), chain.parameters), after(exported, chain.parameters);
  for (const ParameterSpec& parameter : chain.parameters) {
    for (const LogicalTensor& tensor : parameter.logical) {
      std::vector<float> a(static_cast<std::size_t>(tensor.box.numel())), b(a.size());
      const Box box{0, tensor.box.rows(), 0, tensor.box.columns()};
      before.read(tensor.name, box, a.data(), tensor.box.columns());
      after.read(tensor.name, box, b.data(), tensor.box.columns());
      EXPECT_GT(largest_difference(a, b), 0) << tensor.name;
      EXPECT_LT(largest_difference(a, b), 0.01) << tensor.name;
    }
  }
  fs::rename(c.folder(), c.folder().parent_path() / "away");
  const std::vector<std::string> longer{TRIREME_BINARY, "train", config, "training.max_steps=3"};
  std::vector<std::string> kept = longer;
  kept.push_back("model.path=" + (c.run() / "model").string());
  EXPECT_EQ(run(longer).exit_code, 2);
  EXPECT_EQ(run(kept).exit_code, 0);  // weights from the checkpoint, sizes from what the run kept
}

// tools/import_torch.py: weights only, and only of its own process.
TEST(ModelFolders, APickleIsConvertedOutsideAndAHostileOneIsRefused) {
  if (!has_transformers()) GTEST_SKIP() << kNoTransformers;
  const Case c;
  const fs::path python = kOraclePython, parent = c.folder().parent_path();
  const fs::path script = fs::path(TRIREME_SOURCE_DIR) / "tools/import_torch.py";
  const std::string make =
      "import sys, torch, safetensors.torch as s\nfolder = sys.argv[1]\n"
      "torch.save(s.load_file(folder + '/model.safetensors'), folder + '/pytorch_model.bin')\n";
  ASSERT_EQ(run({python, "-c", make, c.folder()}).exit_code, 0);
  fs::rename(c.weights(), parent / "original");
  const ProcessResult result = run({python, script, c.folder(), parent / "imported"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Chain chain = make_chain(checkpoint::read_model_config(parent / "imported").model, DType::f32);
  const checkpoint::ModelWeights weights(parent / "imported", chain.parameters);
  float value = 0;
  weights.read("model.embed_tokens.weight", {1, 2, 3, 4}, &value, 1);
  EXPECT_NEAR(value, (19 * 37 % 101 - 50) / 500.0, 1e-3);

  const std::string evil =
      "import pickle, os, sys\nclass E:\n  def __reduce__(self): return (os.system, ('touch ' + sys.argv[2],))\n"
      "pickle.dump({'a': E()}, open(sys.argv[1] + '/pytorch_model.bin', 'wb'))\n";
  ASSERT_EQ(run({python, "-c", evil, c.folder(), parent / "ran"}).exit_code, 0);
  EXPECT_NE(run({python, script, c.folder(), parent / "second"}).exit_code, 0);
  EXPECT_FALSE(fs::exists(parent / "ran"));
  EXPECT_FALSE(fs::exists(parent / "second"));
}

}  // namespace
}  // namespace trireme::testing
