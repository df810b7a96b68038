// Whatever bytes come, the reader of JSON ends in a tree or in one of its own errors; where a second reader, strict by
// construction, takes the text too, both have read the same.
#include <nlohmann/json.hpp>

#include "config/dialects.h"
#include "config/json.h"
#include "helpers.h"
#include "support/seed.h"
#include "support/text_mutator.h"

namespace trireme::config {
namespace {

using Json = nlohmann::json;

std::vector<std::string> seed_files() {
  return {R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": "auto", "gradient_clipping": 0.5,
 "zero_optimization": {"stage": 2, "overlap_comm": true, "reduce_bucket_size": 5e8, "offload_optimizer": {"device": "cpu"}}})",
          R"({"a": [1, -2.5e-3, "x\u00e9\n", [], {}, null, false], "b": {"c": {"d": ["\ud83d\ude00"]}}})",
          "{\n  \"a\": 1, # one\n  // two\n  \"b\": [1, 2,], /* three */\n}\n",
          "{\"_note\": \"\\\"\\\\\\/\\b\", \"z\": 0}"};
}

const std::vector<std::string> kJsonPieces = {"{",
                                              "}",
                                              "[",
                                              "]",
                                              ",",
                                              ":",
                                              "\"",
                                              "\\",
                                              "\\u",
                                              "\\ud83d",
                                              "\\u0041",
                                              "/*",
                                              "*/",
                                              "//",
                                              "#",
                                              "\n",
                                              "\r\n",
                                              "\t",
                                              " ",
                                              "1",
                                              "0",
                                              "-",
                                              ".",
                                              "e5",
                                              "1e400",
                                              "+",
                                              "true",
                                              "false",
                                              "null",
                                              "True",
                                              "NaN",
                                              "'",
                                              "\xC3\xA9",
                                              "\xFF",
                                              "\xEF\xBB\xBF",
                                              "\x7F",
                                              "\"a\": ",
                                              "\"stage\"",
                                              std::string("\0", 1)};

void expect_same(const YamlNode& ours, const Json& theirs) {
  switch (ours.kind) {
    case YamlNode::Kind::null: EXPECT_TRUE(theirs.is_null()); return;
    case YamlNode::Kind::scalar:
      if (ours.quoted) {
        EXPECT_EQ(Json(ours.text), theirs);
      } else {
        EXPECT_EQ(Json::parse(ours.text), theirs);
      }
      return;
    case YamlNode::Kind::list:
      ASSERT_TRUE(theirs.is_array());
      ASSERT_EQ(ours.items.size(), theirs.size());
      for (std::size_t i = 0; i < ours.items.size(); ++i) expect_same(ours.items[i], theirs[i]);
      return;
    case YamlNode::Kind::block:
      ASSERT_TRUE(theirs.is_object());
      ASSERT_EQ(ours.entries.size(), theirs.size());
      for (const YamlNode::Entry& entry : ours.entries) {
        ASSERT_TRUE(theirs.contains(entry.key)) << entry.key;
        expect_same(entry.value, theirs[entry.key]);
      }
  }
}

enum class Seen { refused, ours_alone, both };

Seen read_both(const std::string& text) {
  const Json theirs = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const bool is_json = !theirs.is_discarded() && theirs.is_object();
  try {
    const YamlNode ours = read_json(text, "ds.json");
    if (is_json) expect_same(ours, theirs);
    return is_json ? Seen::both : Seen::ours_alone;
  } catch (const Error& error) {
    EXPECT_TRUE(error.code() == 2103 || error.code() == 2107 || error.code() == 2108) << error.what();
    EXPECT_FALSE(error.code() == 2107 && is_json) << "strict JSON is refused: " << error.what();
    EXPECT_TRUE(error.place().starts_with("ds.json:")) << error.place();
    EXPECT_LT(std::string(error.what()).size(), 2000u);
    return Seen::refused;
  }
}

TEST(JsonFuzz, ReadsWhatASecondReaderReads) {
  const unsigned seed = testing::test_seed();
  SCOPED_TRACE("TRIREME_TEST_SEED=" + std::to_string(seed));
  testing::TextMutator mutator(seed, kJsonPieces);
  const std::vector<std::string> documents = seed_files();
  for (const std::string& text : documents) ASSERT_NE(read_both(text), Seen::refused) << text;
  int both = 0, ours_alone = 0;
  const int rounds = testing::fuzz_rounds(40000);
  for (int i = 0; i < rounds; ++i) {
    const std::string text = mutator.mutate_one_of(documents);
    SCOPED_TRACE(text);
    const Seen seen = read_both(text);
    both += seen == Seen::both;
    ours_alone += seen == Seen::ours_alone;
    if (HasFailure()) return;
  }
  EXPECT_GT(both, 1000) << "the mutations say nothing about acceptance";
  EXPECT_GT(ours_alone, 100) << "the mutations say nothing about comments";
}

// A mutated file of DeepSpeed is a plan, or an error of a configuration; it is never taken in silence where a key is
// unknown (Translation has no other way to pass a key over).
TEST(JsonFuzz, MutatedFilesOfDeepSpeedEndInSettingsOrAnError) {
  const unsigned seed = testing::test_seed();
  SCOPED_TRACE("TRIREME_TEST_SEED=" + std::to_string(seed));
  testing::TextMutator mutator(seed, kJsonPieces);
  const std::string file = seed_files().front();
  int taken = 0;
  const int rounds = testing::fuzz_rounds(10000);
  for (int i = 0; i < rounds; ++i) {
    const std::string text = mutator.mutate(file);
    SCOPED_TRACE(text);
    try {
      Translation translation(deepspeed_dialect());
      translation.take(read_json(text, "ds.json"), "ds.json");
      ++taken;
    } catch (const Error& error) {
      EXPECT_TRUE((error.code() >= 2101 && error.code() <= 2108) || error.code() == 2190) << error.what();
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(taken, 5);
}

}  // namespace
}  // namespace trireme::config
