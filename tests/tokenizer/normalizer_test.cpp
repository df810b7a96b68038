// What stands at the front of a text after replacements: Metaspace with prepend_scheme first asks for it. The cases are
// those of the Python package's offsets; random_test.cpp compares whole tokenizers.
#include "data/tokenizer_normalizer.h"

#include <gtest/gtest.h>

namespace trireme::data {
namespace {

NormalizerStep replace(const std::string& pattern, const std::string& content) {
  return {.kind = NormalizerStep::Kind::replace, .pattern = pattern, .is_regex = true, .content = content};
}

bool keeps_front(std::vector<NormalizerStep> steps, const std::string& text) {
  const Normalizer normalizer(std::move(steps));
  Normalizer::Scratch scratch = normalizer.make_scratch();
  return normalizer.run(text, scratch).keeps_front;
}

TEST(Normalizer, OneCharacterAtTheFrontMayBeReplaced) {
  EXPECT_TRUE(keeps_front({replace("a", "xy")}, "ab"));
  EXPECT_FALSE(keeps_front({replace("ab", "xy")}, "abc")) << "two are fused";
  EXPECT_FALSE(keeps_front({replace("a", "")}, "ab")) << "it is gone";
  EXPECT_TRUE(keeps_front({replace("b", "")}, "ab"));
}

TEST(Normalizer, WhatReplacedTheFirstCharacterMayBeReplacedAsAWhole) {
  EXPECT_TRUE(keeps_front({replace(" ", "xy"), replace("[^\\s]+", "z")}, " "));
  EXPECT_FALSE(keeps_front({replace(" ", "xy"), replace("[^\\s]+", "z")}, " b")) << "b is in it too";
  EXPECT_TRUE(keeps_front({replace(" ", "xy"), replace("x", "z")}, " b"));
}

}  // namespace
}  // namespace trireme::data
