// Small models with large random weights, where a mistake changes tokens at once, and the texts that they write.
#pragma once
#include <gtest/gtest.h>

#include <random>
#include <span>
#include <string>
#include <vector>

#include "models/model.h"
#include "train/generator.h"

namespace trireme::testing {

inline LlamaConfig small_llama() {
  LlamaConfig config;
  config.vocabulary = 257;
  config.hidden_size = 32;
  config.intermediate_size = 48;
  config.num_layers = 3;
  config.num_heads = 4;
  config.num_key_value_heads = 2;
  config.max_positions = 640;
  return config;
}

inline LlamaConfig with_windows() {
  LlamaConfig config = small_llama();
  config.windows = {7, 0, 20};
  return config;
}

inline LlamaConfig with_two_sets_of_frequencies(std::int64_t border) {
  LlamaConfig config = small_llama();
  config.rope.scaling.kind = RopeScaling::Kind::longrope;
  config.rope.scaling.original_max_positions = border;
  config.rope.scaling.short_factors = {1, 1.1, 1.2, 1.3};
  config.rope.scaling.long_factors = {1.5, 2, 2.5, 3};
  return config;
}

inline Gpt2Config small_gpt2() {
  Gpt2Config config;
  config.vocabulary = 257, config.hidden_size = 32, config.intermediate_size = 64;
  config.num_layers = 2, config.num_heads = 4, config.max_positions = 96;
  return config;
}

inline train::TextModel random_text_model(const ModelConfig& config,
                                          engine::MemoryKind memory = engine::MemoryKind::host) {
  std::mt19937_64 random(7);
  std::normal_distribution<float> normal(0, 0.3F);
  const train::ReadTensor draw = [&](const LogicalTensor& tensor, float* out, std::int64_t stride) {
    for (std::int64_t row = 0; row < tensor.box.rows(); ++row) {
      for (std::int64_t column = 0; column < tensor.box.columns(); ++column) {
        out[row * stride + column] = normal(random);
      }
    }
  };
  train::TextModel text;
  text.model = train::load_forward_model(make_chain(config, DType::f32), draw, memory);
  text.tokenizer = data::load_tokenizer("bytes");
  text.before = {text.tokenizer->end_of_document()};
  return text;
}

inline std::string long_prompt(std::size_t length) {
  std::string text;
  for (std::size_t i = 0; text.size() < length; ++i) text += std::to_string(i * i * 7919) + " ";
  return text.substr(0, length);
}

inline std::vector<std::string> texts_of(const train::Generator& generator, std::span<const std::string> prompts,
                                         const train::SamplingOptions& options, std::int64_t together) {
  std::vector<std::string> texts(prompts.size());
  std::vector<int> ends(prompts.size());
  generator.generate(prompts, options, together, [&](std::size_t prompt, std::string_view piece, bool ended) {
    EXPECT_EQ(ends[prompt], 0);
    texts[prompt] += piece;
    ends[prompt] += static_cast<int>(ended);
  });
  EXPECT_EQ(ends, std::vector<int>(prompts.size(), 1));
  return texts;
}

}  // namespace trireme::testing
