#include "data/bpe_spec_json.h"

#include <charconv>

#include "base/error.h"
#include "data/pretokenizer_pattern.h"

namespace trireme::data {
namespace {

constexpr const char* kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

bool required_boolean(const JsonPlace& value) {
  if (value.is_null()) value.wrong_type("true or false");
  return value.boolean(false);
}

void read_normalizer(const JsonPlace& normalizer, BpeSpec& spec) {
  if (normalizer.is_null()) return;
  const std::string& type = normalizer["type"].text();
  if (type == "NFC") {
    normalizer.only_keys({"type"});
    spec.nfc = true;
  } else if (type == "Sequence") {
    normalizer.only_keys({"type", "normalizers"});
    const JsonPlace parts = normalizer["normalizers"];
    for (std::size_t i = 0; i < parts.array_size(); ++i) read_normalizer(parts.at(i), spec);
  } else {
    normalizer.not_supported("the normalizer " + type);
  }
}

SplitBehavior split_behavior(const JsonPlace& value) {
  const std::string& name = value.text();
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  value.not_supported("the split behavior");
}

PretokenizerStep read_split(const JsonPlace& step) {
  step.only_keys({"type", "pattern", "behavior", "invert"});
  const JsonPlace pattern = step["pattern"];
  pattern.only_keys({"Regex", "String"});
  const bool is_regex = !pattern["Regex"].is_null();
  if (pattern.value().size() != 1) pattern.wrong_type("either a Regex or a String");
  const std::string& text = pattern[is_regex ? "Regex" : "String"].text();
  return {.pattern = is_regex ? text : quote_pattern(text),
          .behavior = split_behavior(step["behavior"]),
          .invert = required_boolean(step["invert"]),
          .place = pattern.place()};
}

// True where it held the byte-level step, which must come last.
bool read_pre_tokenizer(const JsonPlace& step, std::vector<PretokenizerStep>& steps) {
  const std::string& type = step["type"].text();
  if (type == "Split") {
    steps.push_back(read_split(step));
  } else if (type == "Digits") {
    step.only_keys({"type", "individual_digits"});
    const bool individual = required_boolean(step["individual_digits"]);
    steps.push_back({.kind = PretokenizerStep::Kind::digits,
                     .behavior = individual ? SplitBehavior::isolated : SplitBehavior::contiguous,
                     .place = step.place()});
  } else if (type == "ByteLevel") {
    step.only_keys({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    const bool prefix = required_boolean(step["add_prefix_space"]);
    if (step["use_regex"].boolean(true)) {
      append_gpt2_steps(prefix, step.place(), steps);
    } else if (prefix) {
      steps.push_back({.kind = PretokenizerStep::Kind::prefix_space, .place = step.place()});
    }
    return true;
  } else if (type == "Sequence") {
    step.only_keys({"type", "pretokenizers"});
    const JsonPlace parts = step["pretokenizers"];
    for (std::size_t i = 0; i < parts.array_size(); ++i) {
      if (!read_pre_tokenizer(parts.at(i), steps)) continue;
      if (i + 1 < parts.array_size()) parts.at(i + 1).not_supported("a pre-tokenizer after ByteLevel");
      return true;
    }
  } else {
    step.not_supported("the pre-tokenizer " + type);
  }
  return false;
}

// Post-processors only add special tokens, which encode leaves out, or move offsets, which it does not give.
void check_post_processor(const JsonPlace& processor) {
  if (processor.is_null()) return;
  const std::string& type = processor["type"].text();
  if (type == "Sequence") {
    const JsonPlace parts = processor["processors"];
    for (std::size_t i = 0; i < parts.array_size(); ++i) check_post_processor(parts.at(i));
  } else if (type != "ByteLevel" && type != "TemplateProcessing" && type != "RobertaProcessing" &&
             type != "BertProcessing") {
    processor.not_supported("the post-processor " + type);
  }
}

AddedToken read_token_flags(const JsonPlace& token) {
  return {.content = token["content"].text(),
          .single_word = required_boolean(token["single_word"]),
          .lstrip = required_boolean(token["lstrip"]),
          .rstrip = required_boolean(token["rstrip"]),
          .normalized = required_boolean(token["normalized"]),
          .special = required_boolean(token["special"])};
}

std::int32_t token_id(const JsonPlace& value) {
  const std::int64_t id = value.integer();
  if (id < 0 || id >= kMaxVocabulary) {
    throw Error(4112, value.place(),
                "id " + std::to_string(id) + " is not in 0 .. " + std::to_string(kMaxVocabulary - 1));
  }
  return static_cast<std::int32_t>(id);
}

}  // namespace

void append_gpt2_steps(bool add_prefix_space, const std::string& place, std::vector<PretokenizerStep>& steps) {
  if (add_prefix_space) steps.push_back({.kind = PretokenizerStep::Kind::prefix_space, .place = place});
  steps.push_back({.pattern = kGpt2Pattern, .place = place});
}

void read_pipeline(const JsonPlace& root, BpeSpec& spec) {
  root.only_keys({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
                  "decoder", "model"});
  if (const JsonPlace version = root["version"]; !version.is_null() && version.text() != "1.0") {
    version.not_supported("this version of the format");
  }
  for (const char* key : {"truncation", "padding"}) {
    if (!root[key].is_null()) root[key].not_supported(std::string(key) + " of the text (set it to null)");
  }
  read_normalizer(root["normalizer"], spec);
  const JsonPlace pre_tokenizer = root["pre_tokenizer"];
  if (pre_tokenizer.is_null() || !read_pre_tokenizer(pre_tokenizer, spec.steps)) {
    pre_tokenizer.not_supported("a tokenizer that is not byte-level (no ByteLevel pre-tokenizer)");
  }
  check_post_processor(root["post_processor"]);
  if (const JsonPlace decoder = root["decoder"]; !decoder.is_null() && decoder["type"].text() != "ByteLevel") {
    decoder.not_supported("the decoder " + decoder["type"].text());
  }
}

BpeModelOptions read_model_options(const JsonPlace& model, BpeSpec& spec) {
  // Files from before tokenizers 0.9 do not name the type.
  if (const JsonPlace type = model["type"]; !type.is_null() && type.text() != "BPE") {
    model["type"].not_supported("the model");
  }
  model.only_keys({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                   "byte_fallback", "ignore_merges", "vocab", "merges"});
  if (const JsonPlace dropout = model["dropout"]; !dropout.is_null() && dropout.value() != 0.0) {
    dropout.not_supported("BPE dropout, which makes ids random,");
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (const JsonPlace affix = model[key]; !affix.is_null() && !affix.text().empty()) affix.not_supported(key);
  }
  spec.ignore_merges = model["ignore_merges"].boolean(false);
  BpeModelOptions options{.place = model.place()};
  if (const JsonPlace unknown = model["unk_token"]; !unknown.is_null()) options.unknown = unknown.text();
  options.fuse_unknown = model["fuse_unk"].boolean(false);
  options.byte_fallback = model["byte_fallback"].boolean(false);
  return options;
}

void read_merges(const JsonPlace& merges, VocabularyReader& vocabulary) {
  const std::size_t count = merges.array_size();
  const auto place = [&](std::size_t i) { return merges.place() + "[" + std::to_string(i) + "]"; };
  for (std::size_t i = 0; i < count; ++i) {
    const auto& merge = merges.value()[i];
    if (merge.is_string() && merges.value()[0].is_string()) {
      vocabulary.add_merge_line(merge.get_ref<const std::string&>(), [&] { return place(i); });
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string() &&
               merges.value()[0].is_array()) {
      vocabulary.add_merge(merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>(),
                           [&] { return place(i); });
    } else {
      merges.at(i).wrong_type("a merge like the others: \"a b\" or [\"a\", \"b\"]");
    }
  }
}

void read_added_tokens(const JsonPlace& tokens, VocabularyReader& vocabulary) {
  if (tokens.is_null()) return;
  for (std::size_t i = 0; i < tokens.array_size(); ++i) {
    const JsonPlace entry = tokens.at(i);
    entry.only_keys({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    AddedToken token = read_token_flags(entry);
    token.id = token_id(entry["id"]);
    vocabulary.add_token(std::move(token), entry.place());
  }
}

std::vector<std::pair<AddedToken, std::string>> read_added_tokens_decoder(const JsonPlace& tokens) {
  std::vector<std::pair<AddedToken, std::string>> found;
  if (!tokens.value().is_object()) tokens.wrong_type("an object of id -> token");
  for (const auto& [key, value] : tokens.value().items()) {
    const JsonPlace entry(value, tokens.place() + "." + key);
    AddedToken token = read_token_flags(entry);
    const auto [end, status] = std::from_chars(key.data(), key.data() + key.size(), token.id);
    if (status != std::errc() || end != key.data() + key.size()) {
      throw Error(4112, entry.place(), "the key is no id");
    }
    found.emplace_back(std::move(token), entry.place());
  }
  return found;
}

std::vector<std::pair<AddedToken, std::string>> read_added_tokens_by_name(const JsonPlace& tokens) {
  std::vector<std::pair<AddedToken, std::string>> found;
  if (!tokens.value().is_object()) tokens.wrong_type("an object of token -> id");
  for (const auto& [key, value] : tokens.value().items()) {
    const JsonPlace entry(value, tokens.place() + key);
    found.emplace_back(AddedToken{.content = key, .id = token_id(entry), .normalized = false, .special = true},
                       entry.place());
  }
  return found;
}

}  // namespace trireme::data
