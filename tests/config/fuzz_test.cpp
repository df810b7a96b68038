// Whatever bytes come, the reader ends in a plan or in one of its own errors, and never reads past a key it does not
// know.
#include <yaml-cpp/yaml.h>

#include "config/document.h"
#include "config/schema.h"
#include "helpers.h"
#include "support/seed.h"
#include "support/text_mutator.h"

namespace trireme::config {
namespace {

std::vector<std::string> seed_documents() {
  return {kSmall, to_yaml(plan_of(kSmall)),
          "{model: {hidden_size: 64, num_layers: 1, num_heads: 4}, data: {path: \"x y\"}, training: {max_steps: 5e2}}",
          "# comment\nname: 'it-s'\ndistributed:\n  fsdp_transformer_layer_cls_to_wrap: []\n  tp: 1\nmonitor:\n"
          "  report_to:\n    - none\n    - \"jsonl\"\n" +
              kSmall,
          "output_dir: >-\n  folded\n  text\n" + kSmall + "  adam_beta1: .9\n  lr: 1e-3\n  bf16: yes\n"};
}

const std::vector<std::string> kYamlPieces = {"\n",       "\r\n",        " ",
                                              "  ",       "\t",          ":",
                                              ": ",       "- ",          "? ",
                                              "[",        "]",           "{",
                                              "}",        ",",           "#",
                                              "'",        "\"",          "\\",
                                              "&a ",      "*a",          "!!a",
                                              "!",        "%",           "@",
                                              "`",        "|\n",         ">\n",
                                              "---",      "...",         "<<",
                                              "~",        "null",        "1e9",
                                              "0x",       ".",           "-",
                                              "_",        "\xEF",        "\xBB\xBF",
                                              "\xC3\xA9", "\xFF",        std::string("\0", 1),
                                              "\x7F",     "tp",          "training",
                                              "\\u",      "\\x4",        "=",
                                              "no",       "%YAML 1.2\n", "\xE2\x80\xA8",
                                              "\xC2\x85"};

// The keys as yaml-cpp's own tree has them.
void expect_known_keys(const YAML::Node& node, const std::string& prefix) {
  for (const auto& entry : node) {
    const std::string name = prefix + entry.first.Scalar();
    if (find_key(name).key != nullptr) continue;
    ASSERT_TRUE(is_block(name)) << "accepted the unknown key " << name;
    if (entry.second.IsMap()) expect_known_keys(entry.second, name + ".");
  }
}

// True where the text is accepted.
bool survives(const std::string& text, const Overrides& overrides) {
  try {
    const Plan plan = plan_of(text, overrides);
    EXPECT_EQ(to_yaml(plan_of(to_yaml(plan))), to_yaml(plan));
    return true;
  } catch (const Error& error) {
    const bool is_ours = (error.code() >= 2100 && error.code() <= 2109) || error.code() == 2190;
    EXPECT_TRUE(is_ours) << error.what();
    EXPECT_FALSE(error.place().empty());
    EXPECT_LT(std::string(error.what()).size(), 2000u);
    return false;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "not one of our errors: " << error.what();  // here, where the text is told too
    return false;
  }
}

TEST(Fuzz, MutatedDocumentsEndInAPlanOrAnError) {
  const unsigned seed = testing::test_seed();
  SCOPED_TRACE("TRIREME_TEST_SEED=" + std::to_string(seed));
  testing::TextMutator mutator(seed, kYamlPieces);
  const std::vector<std::string> documents = seed_documents();
  for (const std::string& text : documents) ASSERT_TRUE(survives(text, {})) << text;
  int accepted = 0;
  const int rounds = testing::fuzz_rounds(8000);
  for (int i = 0; i < rounds; ++i) {
    const std::string text = mutator.mutate_one_of(documents);
    SCOPED_TRACE(text);
    if (survives(text, {})) {
      expect_known_keys(YAML::Load(text), "");
      ++accepted;
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(accepted, 100) << "the mutations say nothing about acceptance";
  RecordProperty("accepted", accepted);
}

TEST(Fuzz, MutatedOverridesEndInAPlanOrAnError) {
  const unsigned seed = testing::test_seed();
  SCOPED_TRACE("TRIREME_TEST_SEED=" + std::to_string(seed));
  testing::TextMutator mutator(seed, kYamlPieces);
  const std::vector<std::string> texts = {"training.max_steps=10", "monitor.report_to=[none, 'jsonl']",
                                          "model={num_heads: 2, head_dim: 32}", "data.path=\"a b\"",
                                          "training.learning_rate=1e-3"};
  const int rounds = testing::fuzz_rounds(4000);
  for (int i = 0; i < rounds; ++i) {
    const std::string text = mutator.mutate_one_of(texts);
    SCOPED_TRACE(text);
    survives(kSmall, {text});
    if (HasFailure()) return;
  }
}

std::string repeated(const std::string& piece, std::size_t bytes) {
  std::string result;
  while (result.size() + piece.size() <= bytes) result += piece;
  return result;
}

// "a3: &a3 [*a2, *a2]": each such line doubles what the one before stands for.
std::string doubling(int i) {
  const std::string name = "a" + std::to_string(i), before = "*a" + std::to_string(i - 1);
  return name + ": &" + name + " [" + before + ", " + before + "]\n";
}

// Depth, length and aliases cannot blow up: each of these ends in an error, in less than the suite's time limit.
TEST(Fuzz, BombsAreRefused) {
  std::string aliases = "a0: &a0 [x, x]\n";
  for (int i = 1; i < 40; ++i) aliases += doubling(i);
  EXPECT_EQ(error_of(aliases)->code(), 2108);

  constexpr std::size_t kBytes = kMaxDocumentBytes - 100;
  for (const char* piece :
       {"[",   "{",    "{a: ", "[a: ", "? ", "- ", "!",    "&a ",   "*",  "a: ", "'",    "\"",    "|\n",
        "-\n", "a:\n", "#",    "\t",   "\r", ",",  "%a\n", "---\n", "[]", "\\",  "-\n ", "k: [\n"}) {
    const std::string text = repeated(piece, kBytes);
    SCOPED_TRACE(piece);
    survives(text, {});
    survives("training:\n  seed: " + text, {});
    survives(kSmall, {"training.seed=" + text});
  }
  std::string indented, keys;
  for (int i = 0; i < 1000; ++i) indented.append(static_cast<std::size_t>(i), ' ').append("a:\n");
  EXPECT_EQ(error_of(indented)->code(), 2108);
  for (int i = 0; i < 60000; ++i) keys.append("k").append(std::to_string(i)).append(": 1\n");
  EXPECT_EQ(error_of(keys)->code(), 2101);
}

TEST(Fuzz, TextOverTheLimitIsRefused) {
  EXPECT_EQ(error_of(std::string(kMaxDocumentBytes + 1, '\n'))->code(), 2108);
  EXPECT_EQ(error_of(kSmall, {"data.path=" + std::string(kMaxDocumentBytes + 1, 'x')})->code(), 2108);
}

}  // namespace
}  // namespace trireme::config
