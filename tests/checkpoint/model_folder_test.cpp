// Weights of a Hugging Face folder: of any type, whole or in shards, and one clear error for each that is not right.
#include "checkpoint/model_folder.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "base/file.h"
#include "checkpoint/element_cast.h"
#include "checkpoint/model_export.h"
#include "support/expect_error.h"
#include "support/seed.h"
#include "support/temporary_folder.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

ModelConfig small_model(bool tied = true) {
  return LlamaConfig{.vocabulary = 30,
                     .hidden_size = 8,
                     .intermediate_size = 12,
                     .num_layers = 2,
                     .num_heads = 2,
                     .num_key_value_heads = 1,
                     .head_dim = 4,
                     .max_positions = 16,
                     .tie_word_embeddings = tied};
}

// Element i of any tensor; exact in bf16 and fp16.
float element(std::int64_t i) {
  return static_cast<float>(i % 97 - 48) / 8;
}

struct Folder {
  explicit Folder(bool tied = true) : chain(make_chain(small_model(tied), DType::f32)) {}
  fs::path path() const { return temporary.path() / "model"; }
  void write(DType dtype, std::uint64_t max_shard_bytes = 1 << 30) const {
    ModelExport model;
    model.config_json = to_hugging_face_config(small_model(), dtype);
    model.parameters = chain.parameters;
    model.read = [](const LogicalTensor& tensor, float* out) {
      for (std::int64_t i = 0; i < tensor.box.numel(); ++i) out[i] = element(i);
    };
    model.dtype = dtype;
    model.max_shard_bytes = max_shard_bytes;
    export_model(path(), model);
  }
  // Writes the single file anew, with the list of its tensors changed.
  void rewrite(const std::function<void(std::vector<TensorToWrite>&)>& change) const {
    const fs::path file = path() / "model.safetensors";
    {
      const SafetensorsFile old(file);
      std::vector<TensorToWrite> tensors;
      for (const auto& [name, entry] : old.tensors()) tensors.push_back({name, entry});
      change(tensors);
      write_safetensors(path() / "changed", tensors, {});
    }
    fs::rename(path() / "changed", file);
  }
  std::string expect_error(int code) const {
    return testing::expect_error(code, [&] { ModelWeights(path(), chain.parameters); });
  }
  testing::TemporaryFolder temporary;
  Chain chain;
};

TEST(ModelFolder, WeightsComeBackFromEveryTypeWholeAndInShards) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const std::uint64_t shard_bytes : {std::uint64_t{1} << 30, std::uint64_t{1000}}) {
      const Folder folder;
      folder.write(dtype, shard_bytes);
      const ModelWeights weights(folder.path(), folder.chain.parameters);
      EXPECT_EQ(weights.files().size() > 1, shard_bytes == 1000);
      EXPECT_EQ(weights.dtype(), dtype);
      for (const ParameterSpec& parameter : folder.chain.parameters) {
        for (const LogicalTensor& tensor : parameter.logical) {
          std::vector<float> values(static_cast<std::size_t>(tensor.box.numel()), NAN);
          weights.read(tensor.name, {0, tensor.box.rows(), 0, tensor.box.columns()}, values.data(),
                       tensor.box.columns());
          for (std::int64_t i = 0; i < tensor.box.numel(); ++i)
            ASSERT_EQ(values[i], element(i)) << tensor.name << " " << i;
        }
      }
    }
  }
}

TEST(ModelFolder, ABoxIsReadAlone) {
  const Folder folder;
  folder.write(DType::f16);
  const ModelWeights weights(folder.path(), folder.chain.parameters);
  float values[2][5] = {};
  weights.read("model.embed_tokens.weight", {3, 5, 2, 6}, &values[0][0], 5);
  for (int row = 0; row < 2; ++row) {
    for (int column = 0; column < 4; ++column) EXPECT_EQ(values[row][column], element((3 + row) * 8 + 2 + column));
    EXPECT_EQ(values[row][4], 0);
  }
}

TEST(ModelFolder, TensorsOfTheBaseModelHaveShorterNames) {
  const Folder folder;
  folder.write(DType::f32);
  folder.rewrite([](auto& tensors) {
    for (auto& tensor : tensors) tensor.name = tensor.name.substr(tensor.name.find('.') + 1);
  });
  const ModelWeights weights(folder.path(), folder.chain.parameters);
  float value = 0;
  weights.read("model.norm.weight", {0, 1, 3, 4}, &value, 1);
  EXPECT_EQ(value, element(3));
}

TEST(ModelFolder, ATiedHeadMayBeStoredTwiceWhenItIsTheSame) {
  const Folder folder;
  folder.write(DType::f32);
  folder.rewrite([](auto& tensors) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].name != "model.embed_tokens.weight") continue;
      tensors.push_back({"lm_head.weight", tensors[i].entry});
      return;
    }
  });
  EXPECT_NO_THROW(ModelWeights(folder.path(), folder.chain.parameters));
  std::vector<std::byte> other(30 * 8 * 4);
  folder.rewrite([&](auto& tensors) {
    for (auto& tensor : tensors) {
      if (tensor.name == "lm_head.weight") tensor.entry.data = other;
    }
  });
  folder.expect_error(5069);
}

TEST(ModelFolder, WrongTensorsAreNamed) {
  struct Wrong {
    int code;
    const char* word;
    std::function<void(std::vector<TensorToWrite>&)> change;
  };
  static std::vector<std::byte> bytes(30 * 8 * 8);
  const std::vector<Wrong> cases = {
      {5065, "model.embed_tokens.weight (and 1 more)", [](auto& t) { t.erase(t.begin(), t.begin() + 2); }},
      {5066, "[31, 8]",
       [](auto& t) {
         t[0].entry = {DType::f32, {31, 8}, std::span(bytes).first(31 * 8 * 4)};
       }},
      {5066, "[8, 30]",
       [](auto& t) {
         t[0].entry = {DType::f32, {8, 30}, std::span(bytes).first(30 * 8 * 4)};
       }},
      {5067, "int32",
       [](auto& t) {
         t[0].entry = {DType::i32, {30, 8}, std::span(bytes).first(30 * 8 * 4)};
       }},
      {5068, "model.layers.0.adapter.lora_A.weight",
       [](auto& t) {
         t.push_back({"model.layers.0.adapter.lora_A.weight", t[0].entry});
       }},
  };
  for (const Wrong& wrong : cases) {
    const Folder folder;
    folder.write(DType::f32);
    folder.rewrite(wrong.change);
    const std::string text = folder.expect_error(wrong.code);
    EXPECT_NE(text.find(wrong.word), std::string::npos) << text;
  }
}

TEST(ModelFolder, BrokenIndexesAreRefused) {
  const auto broken = [](int code, const std::function<void(const Folder&, std::string&)>& change) {
    const Folder folder;
    folder.write(DType::f32, 1000);
    const fs::path index = folder.path() / "model.safetensors.index.json";
    std::string text = read_file(index);
    change(folder, text);
    write_file_atomic(index, text);
    folder.expect_error(code);
  };
  const auto replace = [](std::string& text, const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos);
    text.replace(at, from.size(), to);
  };
  broken(5062, [](const Folder&, std::string& text) { text = "{"; });
  broken(5062, [](const Folder&, std::string& text) { text = R"({"weight_map": {}})"; });
  broken(5062, [&](const Folder&, std::string& text) { replace(text, "\"model-00001", "\"../model-00001"); });
  broken(5062, [&](const Folder&, std::string& text) { replace(text, "\"model-00001", "\"/model-00001"); });
  broken(5063, [&](const Folder&, std::string& text) { replace(text, "\"model-00001", "\"no-model-00001"); });
  broken(5063, [&](const Folder&, std::string& text) { replace(text, "model.norm.weight", "model.other.weight"); });
  broken(5063, [](const Folder& folder, std::string&) {
    for (const auto& entry : fs::directory_iterator(folder.path())) {
      if (entry.path().filename().string().starts_with("model-00002")) {
        fs::remove(entry.path());
        return;
      }
    }
  });
}

TEST(ModelFolder, NothingIsUnpickled) {
  const Folder folder;
  fs::create_directories(folder.path());
  folder.expect_error(5061);
  write_file_atomic(folder.path() / "pytorch_model.bin", "\x80\x02.");
  const std::string text = folder.expect_error(5064);
  EXPECT_NE(text.find("tools/import_torch.py"), std::string::npos) << text;
}

TEST(ModelFolder, NamesAreLookedUpInTheLocalCache) {
  const testing::TemporaryFolder cache;
  ::setenv("HF_HUB_CACHE", cache.path().c_str(), 1);
  const fs::path repository = cache.path() / "models--org--name";
  EXPECT_NE(testing::expect_error(2250, [] { find_model_folder("org/name"); }).find("hf download org/name"),
            std::string::npos);
  fs::create_directories(repository / "snapshots/abc123");
  fs::create_directories(repository / "snapshots/def456");
  fs::create_directories(repository / "refs");
  testing::expect_error(2250, [] { find_model_folder("org/name"); });  // which of the two?
  write_file_atomic(repository / "refs/main", "def456\n");
  EXPECT_EQ(find_model_folder("org/name"), repository / "snapshots/def456");
  write_file_atomic(repository / "refs/main", "../../../etc");
  testing::expect_error(2250, [] { find_model_folder("org/name"); });
  for (const char* name : {"no-such-folder", "../x/y", "/no/such/folder", "org/.."}) {
    testing::expect_error(2250, [&] { find_model_folder(name); });
  }
  ::unsetenv("HF_HUB_CACHE");
}

TEST(ModelFolder, AnExportNeverOverwritesAndLeavesNothingBehind) {
  const Folder folder;
  fs::create_directories(folder.path());
  folder.write(DType::f32);  // an empty folder may be there
  testing::expect_error(2262, [&] { folder.write(DType::f32); });
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder.temporary.path())) names.push_back(entry.path().filename());
  EXPECT_EQ(names, std::vector<std::string>{"model"});
}

TEST(ModelFolder, SurvivesMutatedIndexes) {
  const unsigned seed = trireme::testing::test_seed();
  std::mt19937 random(seed);
  const Folder folder;
  folder.write(DType::f32, 1000);
  const fs::path index = folder.path() / "model.safetensors.index.json";
  const std::string good = read_file(index);
  for (int i = 0; i < 300; ++i) {
    std::string text = good;
    for (unsigned edits = 1 + random() % 3; edits > 0; --edits) {
      const std::size_t at = random() % text.size();
      if (random() % 2 == 0) text[at] = static_cast<char>(random());
      if (random() % 2 == 0) text.erase(at, random() % 20);
      if (random() % 2 == 0) text.insert(at, text.substr(random() % text.size(), 20));
    }
    fs::remove(index);
    FileWriter file(index);
    file.write(std::as_bytes(std::span(text)));
    file.finish();
    try {
      ModelWeights(folder.path(), folder.chain.parameters);
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), 5) << "seed " << seed << ": " << error.what();
    }
  }
}

// What it rounds to is layout's to prove; here that all three types are cast, without alignment.
TEST(ElementCast, GoesThroughTheValueTypesWithoutAlignment) {
  const std::vector<float> values{0.0f, -1.0f, 1.0009765625f, 6e-8f, 65519.0f, 65520.0f, -1e30f, INFINITY};
  const auto n = std::ssize(values);
  std::vector<std::byte> memory(n * 4 + 1);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    std::vector<float> back(n);
    from_float(dtype, values.data(), n, memory.data() + 1);
    to_float(dtype, memory.data() + 1, n, back.data());
    for (std::int64_t i = 0; i < n; ++i) {
      const float value = values[i];
      const float expected = dtype == DType::f32    ? value
                             : dtype == DType::bf16 ? static_cast<float>(bfloat16(value))
                                                    : static_cast<float>(float16(value));
      EXPECT_EQ(back[i], expected) << to_string(dtype);
    }
  }
}

}  // namespace
}  // namespace trireme::checkpoint
