#include "measure/known_models.h"

#include "base/error.h"

namespace trireme::measure {
namespace {

struct Known {
  const char* name;
  ModelConfig config;
  bool is_listed = true;
};

// Llama 3.1 and 3.2, but for the scaling of RoPE's frequencies, which costs nothing.
LlamaConfig llama3(std::int64_t C, std::int64_t F, std::int64_t L, std::int64_t H, bool tied) {
  return {.vocabulary = 128256,
          .hidden_size = C,
          .intermediate_size = F,
          .num_layers = L,
          .num_heads = H,
          .num_key_value_heads = 8,
          .rope = {.theta = 500000, .scaling = {}},
          .tie_word_embeddings = tied,
          .windows = {},
          .windowed_rope = {}};
}

LlamaConfig qwen25(std::int64_t C, std::int64_t F, std::int64_t L, std::int64_t H, std::int64_t K, bool tied) {
  return {.vocabulary = tied ? 151936 : 152064,
          .hidden_size = C,
          .intermediate_size = F,
          .num_layers = L,
          .num_heads = H,
          .num_key_value_heads = K,
          .rope = {.theta = 1000000, .scaling = {}},
          .rms_norm_eps = 1e-6,
          .tie_word_embeddings = tied,
          .qkv_bias = true,
          .windows = {},
          .windowed_rope = {}};
}

Gpt2Config gpt2(std::int64_t C, std::int64_t L, std::int64_t H) {
  return {.vocabulary = 50257, .hidden_size = C, .num_layers = L, .num_heads = H, .max_positions = 1024};
}

const Known kKnown[] = {
    {"llama-1b", llama3(2048, 8192, 16, 32, true)},
    {"llama-3b", llama3(3072, 8192, 28, 24, true)},
    {"llama-8b", llama3(4096, 14336, 32, 32, false)},
    {"gpt2-124m", gpt2(768, 12, 12)},
    {"gpt2-xl", gpt2(1600, 48, 25)},
    {"qwen2.5-1.5b", qwen25(1536, 8960, 28, 12, 2, true)},
    {"qwen2.5-3b", qwen25(2048, 11008, 36, 16, 2, true)},
    {"qwen2.5-7b", qwen25(3584, 18944, 28, 28, 4, false)},
    // For tests.
    {"tiny",
     LlamaConfig{.vocabulary = 500,
                 .hidden_size = 64,
                 .intermediate_size = 96,
                 .num_layers = 2,
                 .num_heads = 4,
                 .num_key_value_heads = 2,
                 .rope = {},
                 .windows = {},
                 .windowed_rope = {}},
     false},
    {"tiny-gpt2", gpt2(64, 2, 4), false},
};

}  // namespace

ModelConfig known_model(const std::string& name, std::int64_t T) {
  for (const Known& known : kKnown) {
    if (name != known.name) continue;
    ModelConfig config = known.config;
    if (auto* llama = std::get_if<LlamaConfig>(&config)) llama->max_positions = T;
    return config;
  }
  throw Error(2019, "command line: --model", "there is no model '" + name.substr(0, 100) + "' here",
              "choose one of " + known_model_names());
}

std::string known_model_names() {
  std::string names;
  for (const Known& known : kKnown) {
    if (known.is_listed) names += (names.empty() ? "" : ", ") + std::string(known.name);
  }
  return names;
}

std::vector<std::string> all_known_models() {
  std::vector<std::string> names;
  for (const Known& known : kKnown) names.emplace_back(known.name);
  return names;
}

}  // namespace trireme::measure
