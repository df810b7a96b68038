// Text with a cache of keys and values is the text of a model that sees the whole context at every token.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/error.h"
#include "chain/forward.h"
#include "data/tokenizer_stream.h"
#include "train/random_text_model.h"

namespace trireme::testing {
namespace {

using train::SamplingOptions;
using train::TextModel;

std::vector<float> logits_of_whole(const train::ForwardModel& model, const std::vector<std::int32_t>& ids) {
  const Chain& chain = model.chain;
  const BatchShape shape{1, std::ssize(ids)};
  std::vector<std::int32_t> positions(ids.size()), starts(ids.size(), 0), labels(ids.size(), -1);
  std::iota(positions.begin(), positions.end(), 0);
  const Batch batch{shape, ids.data(), labels.data(), positions.data(), starts.data()};
  const engine::Memory memory(forward_bytes(chain, shape));
  const HeadInput head = forward_to_head(chain, batch, model.parameters, memory.at(0));
  std::vector<float> logits(static_cast<std::size_t>(chain.vocabulary));
  const std::int64_t last = shape.sequence - 1;
  chain.units.back()->logits({batch, model.parameters.back(), head.boundary, {}, nullptr, head.workspace},
                             std::span(&last, 1), logits.data());
  return logits;
}

// Greedy, token by token over the whole context.
std::string text_without_cache(const TextModel& text, const std::string& prompt, std::int64_t max_tokens) {
  const std::int64_t limit = text.model.chain.max_positions;
  std::vector<std::int32_t> ids = text.before;
  const std::vector<std::int32_t> given = text.tokenizer->encode(prompt);
  ids.insert(ids.end(), given.begin(), given.end());
  data::TextStream stream(*text.tokenizer);
  stream.pass_over(given);
  std::string written;
  for (std::int64_t i = 0; i < max_tokens; ++i) {
    if (std::ssize(ids) > limit) ids.erase(ids.begin(), ids.end() - limit / 2);
    const std::vector<float> logits = logits_of_whole(text.model, ids);
    const auto next = static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    if (std::find(text.ends.begin(), text.ends.end(), next) != text.ends.end()) break;
    ids.push_back(next);
    written += stream.push(next);
  }
  return written + stream.finish();
}

void expect_the_same_text(const ModelConfig& config, const std::string& prompt, std::int64_t max_tokens) {
  const train::Generator generator(random_text_model(config));
  const std::string expected = text_without_cache(generator.text_model(), prompt, max_tokens);
  EXPECT_EQ(generator.generate(prompt, {.max_tokens = max_tokens, .temperature = 0}), expected);
}

TEST(Generator, WritesWhatTheWholeContextWouldGive) {
  expect_the_same_text(small_llama(), "", 60);
  expect_the_same_text(small_llama(), "a", 60);
  expect_the_same_text(with_windows(), "the sea ", 60);
  expect_the_same_text(small_gpt2(), "the sea ", 60);
}

// More than one pass for the prompt.
TEST(Generator, TakesLongPromptsInParts) {
  expect_the_same_text(small_llama(), long_prompt(600), 20);
  expect_the_same_text(with_windows(), long_prompt(530), 20);
}

TEST(Generator, GoesOnWithTheNewerHalfWhereAContextOutgrowsThePositions) {
  LlamaConfig config = small_llama();
  config.max_positions = 24;
  expect_the_same_text(config, "the sea ", 90);
  expect_the_same_text(config, long_prompt(100), 30);
}

// Longrope turns all keys otherwise as soon as a context is longer than the first training's.
TEST(Generator, StartsAnewAtABorderOfPositions) {
  expect_the_same_text(with_two_sets_of_frequencies(20), "the sea ", 40);
  expect_the_same_text(with_two_sets_of_frequencies(20), long_prompt(30), 10);
  expect_the_same_text(with_two_sets_of_frequencies(20), long_prompt(19), 10);  // 20 with the mark
}

TEST(Generator, PromptsTogetherGetTheTextsThatTheyGetAlone) {
  std::vector<std::string> prompts;
  for (const std::size_t length : {1, 40, 7, 560, 3, 0, 25}) prompts.push_back(long_prompt(length));
  for (const LlamaConfig& config : {with_windows(), with_two_sets_of_frequencies(16)}) {
    TextModel text = random_text_model(config);
    for (std::int32_t id = 0; id < 6; ++id) text.ends.push_back(id * 40);  // some end early
    const train::Generator generator(std::move(text));
    for (const double temperature : {0.0, 0.7}) {
      const SamplingOptions options{.max_tokens = 30, .temperature = temperature, .seed = 5};
      const std::vector<std::string> alone = texts_of(generator, prompts, options, 1);
      for (const std::int64_t together : {2, 3, 7, 20}) {
        EXPECT_EQ(texts_of(generator, prompts, options, together), alone) << together << " together";
      }
    }
    EXPECT_EQ(generator.generate(prompts[0], {.max_tokens = 30, .temperature = 0}),
              texts_of(generator, prompts, {.max_tokens = 30, .temperature = 0}, 2)[0]);
  }
}

TEST(Generator, RefusesAnEmptyPromptWithoutABeginning) {
  TextModel text = random_text_model(small_llama());
  text.before.clear();
  const train::Generator generator(std::move(text));
  const std::vector<std::string> prompts{"a", ""};
  try {
    generator.generate(prompts, {}, 2, [](std::size_t, std::string_view, bool) { FAIL() << "wrote something"; });
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), 2270);
    EXPECT_EQ(error.place(), "prompt 2");
  }
}

// Frequencies of many draws, against the probabilities that the options leave.
TEST(SampleToken, DrawsWhatTheOptionsLeave) {
  const std::vector<float> logits{0.5F, 2.0F, -1.0F, 2.0F, 1.0F, -INFINITY};
  const auto frequencies = [&](const SamplingOptions& options) {
    std::map<std::int32_t, double> counts;
    constexpr int kDraws = 20000;
    for (int i = 0; i < kDraws; ++i) counts[train::sample_token(logits, options, (i + 0.5) / kDraws)] += 1.0 / kDraws;
    return counts;
  };
  const auto expect = [&](const SamplingOptions& options, const std::vector<std::int32_t>& kept) {
    double all = 0;
    for (const std::int32_t id : kept) all += std::exp(logits[id] / options.temperature);
    const auto counts = frequencies(options);
    EXPECT_EQ(counts.size(), kept.size());
    for (const std::int32_t id : kept) {
      ASSERT_TRUE(counts.contains(id)) << id;
      EXPECT_NEAR(counts.at(id), std::exp(logits[id] / options.temperature) / all, 2e-4) << id;
    }
  };
  expect({}, {0, 1, 2, 3, 4});
  expect({.temperature = 0.5}, {0, 1, 2, 3, 4});
  expect({.top_k = 1}, {1});  // of equal ones the lower id
  expect({.top_k = 3}, {1, 3, 4});
  expect({.top_k = 99}, {0, 1, 2, 3, 4});
  expect({.top_p = 0.5}, {1, 3});  // 0.37 each, then 0.14, 0.08, 0.02
  expect({.top_p = 0.2}, {1});
  expect({.top_p = 0.8}, {1, 3, 4});
  expect({.top_k = 3, .top_p = 0.8}, {1, 3});  // of the three, 0.42 each
  EXPECT_EQ(train::sample_token(logits, {.temperature = 0}, 0.99), 1);
}

}  // namespace
}  // namespace trireme::testing
