#include "data/bpe_spec_json.h"

#include <charconv>

#include "base/error.h"

namespace trireme::data {
namespace {

AddedToken read_token_flags(const JsonPlace& token) {
  return {.content = token["content"].text(),
          .single_word = token["single_word"].boolean(),
          .lstrip = token["lstrip"].boolean(),
          .rstrip = token["rstrip"].boolean(),
          .normalized = token["normalized"].boolean(),
          .special = token["special"].boolean()};
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
  spec.alphabet.byte_fallback = model["byte_fallback"].boolean(false);
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
