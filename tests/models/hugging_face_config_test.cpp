// config.json in and out: nothing of a model is lost, nothing that is not understood passes.
#include "models/hugging_face_config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "support/expect_error.h"
#include "support/seed.h"

namespace trireme {
namespace {

using nlohmann::json;

json llama_json() {
  return json::parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 100,
      "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4,
      "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5})");
}

json with(json base, const char* changes) {
  base.merge_patch(json::parse(changes));
  return base;
}

HuggingFaceConfig parse(const json& config) {
  return parse_hugging_face_config(config.dump(), "config.json");
}

LlamaConfig llama(const json& config) {
  return std::get<LlamaConfig>(parse(config).model);
}

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(n)); }
  bool coin() { return below(2) == 1; }
  double number() { return static_cast<double>(1 + below(1000)) / 64; }

 private:
  std::mt19937_64 engine_;
};

RopeScaling random_scaling(Random& random, std::int64_t head_dim, std::int64_t positions) {
  using Kind = RopeScaling::Kind;
  RopeScaling scaling{.kind = static_cast<Kind>(random.below(6))};
  if (scaling.kind != Kind::none) scaling.factor = random.number();
  if (scaling.kind == Kind::dynamic) scaling.original_max_positions = positions;
  if (scaling.kind == Kind::llama3 || scaling.kind == Kind::yarn || scaling.kind == Kind::longrope) {
    scaling.original_max_positions = 1 + random.below(64);
  }
  if (scaling.kind == Kind::llama3) scaling.low_frequency_factor = random.number();
  if (scaling.kind == Kind::yarn) {
    scaling.beta_fast = random.number();
    scaling.mscale = random.coin() ? random.number() : 0;
    scaling.truncate = random.coin();
  }
  if (scaling.kind == Kind::yarn || scaling.kind == Kind::longrope) {
    if (random.coin()) scaling.attention_factor = random.number();
  }
  if (scaling.kind == Kind::longrope) {
    for (std::int64_t i = 0; i < head_dim / 2; ++i) {
      scaling.short_factors.push_back(random.number());
      scaling.long_factors.push_back(random.number());
    }
  }
  return scaling;
}

LlamaConfig random_llama(Random& random, int family) {
  LlamaConfig c;
  c.num_key_value_heads = 1 + random.below(3);
  c.num_heads = c.num_key_value_heads * (1 + random.below(3));
  c.head_dim = 2 * (1 + random.below(4));
  c.vocabulary = 2 + random.below(1000);
  c.hidden_size = c.num_heads * (1 + random.below(20));
  c.intermediate_size = 1 + random.below(100);
  c.num_layers = 1 + random.below(9);
  c.max_positions = 1 + random.below(500);
  c.rms_norm_eps = random.number() * 1e-6;
  c.init_std = random.number() / 100;
  c.tie_word_embeddings = random.coin();
  c.attention_dropout = random.coin() ? 0.125 : 0;
  c.rope.theta = 100 * random.number();
  c.rope.scaling = random_scaling(random, c.head_dim, c.max_positions);
  const bool is_gemma = family >= 4;
  c.activation = is_gemma ? Activation::gelu_tanh : static_cast<Activation>(random.below(4));
  const std::int64_t window = 1 + random.below(40);
  if (family == 1) c.windows.assign(static_cast<std::size_t>(c.num_layers), window);  // mistral
  if (family == 2) c.qkv_bias = true;                                                 // qwen2
  if (family == 3) c.query_key_norms = true;                                          // qwen3
  if (family == 0) c.mlp_bias = random.coin();
  if (family == 0 || family >= 3) c.qkv_bias = c.attention_output_bias = random.coin();
  if (is_gemma) {
    c.one_plus_norm_weights = true;
    c.embedding_scale = std::sqrt(static_cast<double>(c.hidden_size));
  }
  if (family >= 5) {
    c.post_norms = true;
    c.attention_scale = 1 / std::sqrt(static_cast<double>(1 + random.below(300)));
    c.logit_soft_cap = random.coin() ? random.number() : 0;
    if (family == 5) c.attention_soft_cap = random.coin() ? random.number() : 0;
  }
  if (family == 6) {
    c.query_key_norms = true;
    c.windowed_rope = Rope{.theta = random.number(), .scaling = {}};
  }
  if (family == 2 || family == 3 || family >= 5) {
    bool any = false;
    for (std::int64_t layer = 0; layer < c.num_layers; ++layer) {
      c.windows.push_back(random.coin() ? window : 0);
      any = any || c.windows.back() > 0;
    }
    if (!any) c.windows.clear();
  }
  return c;
}

TEST(HuggingFaceConfig, IsTheSameModelAfterItWasWritten) {
  const unsigned seed = testing::test_seed();
  Random random(seed);
  const char* types[] = {"llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text"};
  for (int i = 0; i < 700; ++i) {
    const int family = i % 7;
    const LlamaConfig model = random_llama(random, family);
    const std::string text = to_hugging_face_config(model, DType::bf16, {.bos = 1, .eos = 2, .pad = 0});
    const HuggingFaceConfig read = parse_hugging_face_config(text, "config.json");
    EXPECT_EQ(read.model, ModelConfig(model)) << "seed " << seed << "\n" << text;
    EXPECT_EQ(read.model_type, types[family]) << "seed " << seed << "\n" << text;
  }
}

TEST(HuggingFaceConfig, KeepsAGpt2) {
  const unsigned seed = testing::test_seed();
  Random random(seed);
  for (int i = 0; i < 100; ++i) {
    Gpt2Config c;
    c.num_heads = 1 + random.below(6);
    c.hidden_size = c.num_heads * (1 + random.below(30));
    c.intermediate_size = 1 + random.below(200);
    c.vocabulary = 2 + random.below(1000);
    c.num_layers = 1 + random.below(9);
    c.max_positions = 1 + random.below(500);
    c.activation = static_cast<Activation>(random.below(4));
    c.scale_attention = random.coin();
    c.scale_attention_by_layer = random.coin();
    c.embedding_dropout = random.coin() ? 0.25 : 0;
    c.tie_word_embeddings = random.coin();
    const std::string text = to_hugging_face_config(c, DType::f32);
    EXPECT_EQ(parse_hugging_face_config(text, "config.json").model, ModelConfig(c)) << "seed " << seed << "\n" << text;
  }
}

TEST(HuggingFaceConfig, SpellingsOfTransformers4And5MeanTheSame) {
  const json four = with(llama_json(), R"({"rope_theta": 5e5, "torch_dtype": "bfloat16", "rope_scaling":
      {"type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
       "original_max_position_embeddings": 32}})");
  const json five = with(llama_json(), R"({"dtype": "bfloat16", "rope_parameters":
      {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
       "original_max_position_embeddings": 32}})");
  EXPECT_EQ(llama(four), llama(five));
  EXPECT_EQ(llama(four).rope.scaling.kind, RopeScaling::Kind::llama3);

  const json gemma = with(
      llama_json(), R"({"model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"], "sliding_window": 8})");
  const json gemma_four =
      with(gemma, R"({"rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window_pattern": 3})");
  const json gemma_five = with(gemma, R"({
      "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
      "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e6},
                          "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}})");
  EXPECT_EQ(llama(gemma_four), llama(gemma_five));
  EXPECT_EQ(llama(gemma_four).windows, (std::vector<std::int64_t>{8, 8, 0, 8}));
}

TEST(HuggingFaceConfig, WhatIsNotThereHasTheFamilysDefault) {
  EXPECT_FALSE(llama(llama_json()).tie_word_embeddings);
  EXPECT_EQ(llama(llama_json()).head_dim, 8);
  const json gemma = with(llama_json(), R"({"model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"]})");
  EXPECT_TRUE(llama(gemma).tie_word_embeddings);
  EXPECT_EQ(llama(gemma).head_dim, 256);
  EXPECT_EQ(llama(gemma).windows, (std::vector<std::int64_t>{4096, 0, 4096, 0}));
  EXPECT_EQ(llama(gemma).attention_soft_cap, 50);
  EXPECT_EQ(llama(with(gemma, R"({"attn_logit_softcapping": 20.0})")).attention_soft_cap, 20);
  const json mistral = with(llama_json(), R"({"model_type": "mistral", "architectures": ["MistralForCausalLM"]})");
  EXPECT_EQ(llama(mistral).windows.size(), 4U);
  json unlimited = mistral;
  unlimited["sliding_window"] = nullptr;
  EXPECT_TRUE(llama(unlimited).windows.empty());
}

TEST(HuggingFaceConfig, WhatItDoesNotUnderstandIsRefusedByName) {
  struct Wrong {
    int code;
    const char* changes;
    const char* word;
  };
  const Wrong cases[] = {
      {2260, R"({"model_type": "mamba"})", "mamba"},
      {2260, R"({"architectures": ["LlamaForSequenceClassification"]})", "LlamaForSequenceClassification"},
      {2260, R"({"new_trick": 3})", "new_trick"},
      {2260, R"({"quantization_config": {"bits": 4}})", "quantization_config"},
      {2260, R"({"hidden_act": "quick_gelu"})", "quick_gelu"},
      {2260, R"({"rope_scaling": {"rope_type": "su", "factor": 2.0}})", "su"},
      {2260, R"({"rope_scaling": {"rope_type": "linear", "factor": 2.0, "extra": 1}})", "rope_scaling.extra"},
      {2260, R"({"partial_rotary_factor": 0.5})", "partial_rotary_factor"},
      {2260, R"({"text_config": {}})", "text"},
      {2260, R"({"is_encoder_decoder": true})", "is_encoder_decoder"},
      {5060, R"({"hidden_size": null})", "hidden_size is missing"},
      {5060, R"({"hidden_size": "32"})", "hidden_size"},
      {5060, R"({"hidden_size": 32.5})", "hidden_size"},
      {5060, R"({"hidden_size": 99999999999999999999})", "hidden_size"},
      {5060, R"({"num_hidden_layers": -1})", "num_hidden_layers"},
      {5060, R"({"num_key_value_heads": 3})", "num_key_value_heads"},
      {5060, R"({"head_dim": 7})", "head_dim"},
      {5060, R"({"rms_norm_eps": "small"})", "rms_norm_eps"},
      {5060, R"({"tie_word_embeddings": 1})", "tie_word_embeddings"},
      {5060, R"({"model_type": null})", "model_type"},
      {5060, R"({"rope_scaling": [1]})", "rope_scaling"},
      {5060, R"({"rope_scaling": {"rope_type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}})",
       "short_factor"},
  };
  for (const Wrong& wrong : cases) {
    const std::string text = testing::expect_error(wrong.code, [&] { parse(with(llama_json(), wrong.changes)); });
    EXPECT_NE(text.find(wrong.word), std::string::npos) << wrong.changes << ": " << text;
  }
  testing::expect_error(5060, [] { parse_hugging_face_config("", "config.json"); });
  testing::expect_error(5060, [] { parse_hugging_face_config("[]", "config.json"); });
  testing::expect_error(5060, [] { parse_hugging_face_config(std::string(100000, '['), "config.json"); });
  testing::expect_error(5060, [] { parse_hugging_face_config(R"({"a": 1, "a": 2})", "config.json"); });
}

// A model that no family computes is not written as one that computes something else.
TEST(HuggingFaceConfig, AMixtureOfFamiliesIsRefused) {
  Random random(1);
  LlamaConfig mixed = random_llama(random, 3);
  mixed.post_norms = true;
  testing::expect_error(2261, [&] { to_hugging_face_config(mixed, DType::f32); });
}

// Any bytes give a model or one of its errors, never a crash (run it under ASAN).
TEST(HuggingFaceConfig, SurvivesMutations) {
  const unsigned seed = testing::test_seed();
  Random random(seed);
  for (int i = 0; i < 3000; ++i) {
    std::string text = to_hugging_face_config(random_llama(random, i % 7), DType::f32);
    for (std::int64_t edits = 1 + random.below(4); edits > 0; --edits) {
      const auto at = static_cast<std::size_t>(random.below(std::ssize(text)));
      switch (random.below(4)) {
        case 0: text[at] = static_cast<char>(random.below(256)); break;
        case 1: text.erase(at, static_cast<std::size_t>(random.below(30))); break;
        case 2: text.insert(at, text.substr(static_cast<std::size_t>(random.below(std::ssize(text))), 20)); break;
        default: text.insert(at, 1, "[{\"9e-"[random.below(6)]); break;
      }
      if (text.empty()) text = "{";
    }
    try {
      parse_hugging_face_config(text, "config.json");
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() == 5060 || error.code() == 2260) << "seed " << seed << ": " << error.what();
    }
  }
}

}  // namespace
}  // namespace trireme
