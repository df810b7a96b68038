// A device writes what the CPU writes: in fp32, where the likeliest token is by far more likely than rounding moves.
#include "kernels/device.h"
#include "train/random_text_model.h"

namespace trireme::testing {
namespace {

class DeviceGenerator : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kernels::num_devices() == 0) GTEST_SKIP() << "no CUDA device here: " << kernels::why_no_device();
  }
};

LlamaConfig small_qwen() {
  LlamaConfig config = small_llama();
  config.qkv_bias = config.query_key_norms = true;
  config.tie_word_embeddings = false;
  return config;
}

LlamaConfig small_gemma() {
  LlamaConfig config = with_windows();
  config.head_dim = 12;
  config.activation = Activation::gelu_tanh;
  config.one_plus_norm_weights = config.post_norms = config.query_key_norms = true;
  config.embedding_scale = 5.5;
  config.attention_soft_cap = 20;
  config.logit_soft_cap = 30;
  config.windowed_rope = Rope{.theta = 500};
  return config;
}

void expect_the_text_of_the_cpu(const ModelConfig& config, std::span<const std::string> prompts,
                                std::int64_t max_tokens) {
  const train::Generator cpu(random_text_model(config));
  const train::Generator device(random_text_model(config, engine::MemoryKind::device));
  const train::SamplingOptions greedy{.max_tokens = max_tokens, .temperature = 0};
  const std::vector<std::string> expected = texts_of(cpu, prompts, greedy, 1);
  for (const std::int64_t together : {1, 3, 8}) {
    EXPECT_EQ(texts_of(device, prompts, greedy, together), expected) << together << " together";
  }
}

std::vector<std::string> prompts_of(std::initializer_list<std::size_t> lengths) {
  std::vector<std::string> prompts;
  for (const std::size_t length : lengths) prompts.push_back(long_prompt(length));
  return prompts;
}

TEST_F(DeviceGenerator, WritesTheTextOfTheCpuForEachFamily) {
  const std::vector<std::string> prompts = prompts_of({1, 40, 7, 0, 25});
  for (const ModelConfig& config :
       std::vector<ModelConfig>{small_llama(), with_windows(), small_qwen(), small_gemma(), small_gpt2()}) {
    expect_the_text_of_the_cpu(config, prompts, 40);
  }
}

// More than one pass for the prompt.
TEST_F(DeviceGenerator, TakesLongPromptsInParts) {
  expect_the_text_of_the_cpu(with_windows(), prompts_of({600, 3, 530}), 20);
}

TEST_F(DeviceGenerator, GoesOnWithTheNewerHalfWhereAContextOutgrowsThePositions) {
  LlamaConfig config = small_llama();
  config.max_positions = 24;
  expect_the_text_of_the_cpu(config, prompts_of({8, 100}), 60);
}

TEST_F(DeviceGenerator, StartsAnewAtABorderOfPositions) {
  expect_the_text_of_the_cpu(with_two_sets_of_frequencies(20), prompts_of({8, 30, 19}), 20);
}

// What is drawn follows from the logits, the seed and the prompt's place.
TEST_F(DeviceGenerator, DrawsWhatTheCpuDraws) {
  const std::vector<std::string> prompts = prompts_of({5, 11});
  const train::SamplingOptions options{.max_tokens = 20, .temperature = 0.7, .top_k = 20, .seed = 5};
  const train::Generator cpu(random_text_model(small_llama()));
  const train::Generator device(random_text_model(small_llama(), engine::MemoryKind::device));
  EXPECT_EQ(texts_of(device, prompts, options, 2), texts_of(cpu, prompts, options, 2));
}

}  // namespace
}  // namespace trireme::testing
