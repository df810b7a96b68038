#include "data/bpe_spec.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "data/bpe_spec_json.h"
#include "data/bpe_vocabulary.h"

namespace trireme::data {
namespace {

constexpr const char* kEndOfText = "<|endoftext|>";
constexpr const char* kSpecialNames[] = {"bos_token", "eos_token", "unk_token", "pad_token"};

// tokenizer_config.json writes a special token as a string or as an object with its content.
std::optional<std::string> token_name(const JsonPlace& value) {
  if (value.is_null()) return std::nullopt;
  return value.value().is_object() ? value["content"].text() : value.text();
}

bool has_added(const BpeSpec& spec, const std::string& content) {
  return std::any_of(spec.added.begin(), spec.added.end(), [&](const AddedToken& t) { return t.content == content; });
}

void choose_end_of_document(const TokenizerFiles& files, const JsonPlace& config, const VocabularyReader& vocabulary,
                            BpeSpec& spec) {
  std::string tried = "no <|endoftext|>";
  std::optional<std::int32_t> id = vocabulary.any_id(kEndOfText);
  if (!id && !files.config.empty()) {
    const std::optional<std::string> name = token_name(config["eos_token"]);
    if (name) id = vocabulary.any_id(*name);
    tried += name ? ", and eos_token \"" + *name + "\" of tokenizer_config.json is not in the vocabulary"
                  : ", and no eos_token in tokenizer_config.json";
  } else if (!id) {
    tried += ", and no tokenizer_config.json that names an eos_token";
  }
  if (!id) {
    throw Error(4109, files.main_file.string(), "no token ends a document: " + tried,
                "write {\"eos_token\": \"...\"} with a token of the vocabulary into tokenizer_config.json beside it");
  }
  spec.end_of_document = *id;
}

// What stands for text that has no token. Missing bytes of a byte-level vocabulary have a meaning only for Hugging
// Face's plainest settings.
void choose_unknown(const BpeModelOptions& options, const VocabularyReader& vocabulary, BpeSpec& spec) {
  AlphabetSpec& alphabet = spec.alphabet;
  const bool byte_level = alphabet.kind == AlphabetKind::bytes;
  const auto& bytes = alphabet.byte_ids;
  const bool all_bytes = std::find(bytes.begin(), bytes.end(), kNoToken) == bytes.end();
  if (all_bytes && (byte_level || options.byte_fallback)) return;
  if (byte_level && options.byte_fallback) {
    throw Error(4105, options.place,
                "the vocabulary lacks single bytes, and byte_fallback is set; its byte tokens are not supported there");
  }
  if (!options.unknown) return;
  alphabet.unknown = vocabulary.id(*options.unknown);
  alphabet.fuse_unknown = options.fuse_unknown;
  if (!alphabet.unknown) {
    throw Error(4106, options.place,
                std::string("the vocabulary lacks single ") + (byte_level ? "bytes" : "characters") +
                    ", and unk_token \"" + *options.unknown + "\" is not in it");
  }
}

// What the configuration says of special tokens. As in transformers, add_bos_token and add_eos_token overrule the
// post-processor where either is there.
void choose_special_tokens(const JsonPlace& config, const VocabularyReader& vocabulary, BpeSpec& spec) {
  SpecialTokens& special = spec.special;
  const auto find = [&](const char* key) -> std::optional<std::int32_t> {
    const std::optional<std::string> name = token_name(config[key]);
    return name ? vocabulary.any_id(*name) : std::nullopt;
  };
  special.begin = find("bos_token");
  special.end = find("eos_token");
  special.padding = find("pad_token");
  special.unknown = find("unk_token");
  if (!config.value().contains("add_bos_token") && !config.value().contains("add_eos_token")) return;
  special.before.clear();
  special.after.clear();
  if (config["add_bos_token"].boolean(false) && special.begin) special.before = {*special.begin};
  if (config["add_eos_token"].boolean(false) && special.end) special.after = {*special.end};
}

// Names in tokenizer_config.json whose tokens the vocabulary has become special tokens.
void add_named_tokens(const JsonPlace& config, std::vector<std::string> names, VocabularyReader& vocabulary,
                      BpeSpec& spec) {
  for (const char* key : kSpecialNames) {
    if (const std::optional<std::string> name = token_name(config[key])) names.push_back(*name);
  }
  for (const std::string& name : names) {
    const std::optional<std::int32_t> id = vocabulary.id(name);
    if (!id || has_added(spec, name)) continue;
    vocabulary.add_token({.content = name, .id = *id, .normalized = false, .special = true}, config.place());
  }
}

// The tokens that tokenizer_config.json lists must be those of tokenizer.json (transformers would add others, for which
// the model has no embedding); how they are looked for is as it says there.
void apply_config_tokens(const JsonPlace& config, VocabularyReader& vocabulary, BpeSpec& spec) {
  const JsonPlace listed = config["added_tokens_decoder"];
  if (listed.is_null()) return;
  std::unordered_map<std::int32_t, std::size_t> known;
  for (std::size_t i = 0; i < spec.added.size(); ++i) known.emplace(spec.added[i].id, i);
  for (auto& [token, place] : read_added_tokens_decoder(listed)) {
    const std::optional<std::int32_t> id = vocabulary.any_id(token.content);
    if (id != token.id) {
      throw Error(4112, place,
                  "\"" + token.content + "\" has id " + std::to_string(token.id) + ", but tokenizer.json " +
                      (id ? "gives it " + std::to_string(*id) : "does not have it"),
                  "the two files do not belong together; save the tokenizer anew");
    }
    if (const auto same = known.find(token.id); same != known.end()) {
      spec.added[same->second] = std::move(token);
    } else {
      vocabulary.add_token(std::move(token), place);
    }
  }
}

// Which pieces begin the text is a matter of where they stood before the normalizer, and that is not kept.
void check_first(const BpeSpec& spec) {
  if (spec.normalizer.empty() ||
      std::none_of(spec.added.begin(), spec.added.end(), [](const AddedToken& token) { return token.normalized; })) {
    return;
  }
  for (const PretokenizerStep& step : spec.steps) {
    if (step.kind != PretokenizerStep::Kind::metaspace || step.prepend != PretokenizerStep::Prepend::first) continue;
    throw Error(
        4105, step.place,
        "prepend_scheme first behind a normalizer and added tokens that are looked for in normalised text is not "
        "supported",
        "set \"normalized\": false for the added tokens");
  }
}

BpeSpec read_tokenizer_json(const TokenizerFiles& files, const JsonPlace& config) {
  BpeSpec spec{.place = files.main_file.string()};
  const nlohmann::json document = read_json_file(files.main_file);
  const JsonPlace root(document, spec.place + ": ");
  read_pipeline(root, spec);
  const JsonPlace model = root["model"];
  const BpeModelOptions options = read_model_options(model, spec);
  VocabularyReader vocabulary(model["vocab"], spec);
  read_merges(model["merges"], vocabulary);
  read_added_tokens(root["added_tokens"], vocabulary);
  choose_unknown(options, vocabulary, spec);
  read_decoder(root["decoder"], spec);
  read_post_processor(root["post_processor"], spec);
  apply_config_tokens(config, vocabulary, spec);
  add_named_tokens(config, {}, vocabulary, spec);
  check_first(spec);
  choose_special_tokens(config, vocabulary, spec);
  choose_end_of_document(files, config, vocabulary, spec);
  return spec;
}

void read_merges_text(const std::filesystem::path& file, VocabularyReader& vocabulary) {
  const std::string text = read_file(file);
  std::size_t line_number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line(text.data() + begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    ++line_number;
    vocabulary.add_merge_line(line, [&] { return file.string() + ":" + std::to_string(line_number); });
    begin = end + 1;
  }
}

// vocab.json and merges.txt say nothing about splitting; only GPT-2's own way is known to belong to them.
void require_gpt2_class(const JsonPlace& config) {
  const JsonPlace name = config["tokenizer_class"];
  if (name.is_null() || name.text() == "GPT2Tokenizer" || name.text() == "GPT2TokenizerFast") return;
  throw Error(4105, name.place(), "\"" + name.text() + "\" with vocab.json and merges.txt is not supported",
              "only GPT-2's splitting goes with them; convert the tokenizer to a tokenizer.json");
}

// Tokens beyond the vocabulary, by id, as {id: {content, ...}} or {content: id}; then names that are in it.
void read_config_tokens(const TokenizerFiles& files, const JsonPlace& config, VocabularyReader& vocabulary,
                        BpeSpec& spec) {
  std::vector<std::pair<AddedToken, std::string>> found;
  if (const JsonPlace decoder = config["added_tokens_decoder"]; !decoder.is_null()) {
    found = read_added_tokens_decoder(decoder);
  }
  nlohmann::json added;
  const std::filesystem::path added_file = files.folder / "added_tokens.json";
  if (std::find(files.all.begin(), files.all.end(), added_file) != files.all.end()) {
    added = read_json_file(added_file);
    for (auto& entry : read_added_tokens_by_name(JsonPlace(added, added_file.string() + ": "))) {
      const auto same = [&](const auto& other) { return other.first.content == entry.first.content; };
      if (std::none_of(found.begin(), found.end(), same)) found.push_back(std::move(entry));
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first.id < b.first.id; });
  for (auto& [token, place] : found) vocabulary.add_token(std::move(token), place);

  add_named_tokens(config, {kEndOfText}, vocabulary, spec);
}

BpeSpec read_vocab_merges(const TokenizerFiles& files, const JsonPlace& config) {
  BpeSpec spec{.place = files.main_file.string()};
  require_gpt2_class(config);
  const nlohmann::json document = read_json_file(files.main_file);
  VocabularyReader vocabulary(JsonPlace(document, spec.place + ": "), spec);
  read_merges_text(files.folder / "merges.txt", vocabulary);
  read_config_tokens(files, config, vocabulary, spec);
  append_gpt2_steps(config["add_prefix_space"].boolean(false), spec.place, spec.steps);
  choose_special_tokens(config, vocabulary, spec);
  choose_end_of_document(files, config, vocabulary, spec);
  return spec;
}

void add_field(Digest& digest, std::string_view bytes) {
  const std::uint64_t size = bytes.size();
  digest.add(std::as_bytes(std::span(&size, 1)));
  digest.add(std::as_bytes(std::span(bytes.data(), bytes.size())));
}

void add_number(Digest& digest, std::int64_t value) {
  digest.add(std::as_bytes(std::span(&value, 1)));
}

void add_alphabet(Digest& digest, const AlphabetSpec& alphabet) {
  add_number(digest, static_cast<std::int64_t>(alphabet.kind));
  for (const std::int32_t id : alphabet.byte_ids) add_number(digest, id);
  add_number(digest, (alphabet.byte_fallback ? 2 : 0) + (alphabet.fuse_unknown ? 1 : 0));
  add_number(digest, alphabet.unknown.value_or(kNoToken));
}

}  // namespace

BpeSpec read_bpe_spec(const TokenizerFiles& files) {
  nlohmann::json config = nlohmann::json::object();
  if (!files.config.empty()) config = read_json_file(files.config);
  const JsonPlace config_place(config, files.config.string() + ": ");
  return files.format == TokenizerFormat::tokenizer_json ? read_tokenizer_json(files, config_place)
                                                         : read_vocab_merges(files, config_place);
}

std::string digest_of(const BpeSpec& spec) {
  Digest digest;
  add_field(digest, "trireme bpe 2");
  for (std::size_t id = 0; id < spec.tokens.size(); ++id) {
    if (!spec.tokens[id].exists) continue;
    add_number(digest, static_cast<std::int64_t>(id) * 2 + (spec.tokens[id].in_model ? 1 : 0));
    add_field(digest, spec.tokens[id].bytes);
  }
  add_alphabet(digest, spec.alphabet);
  add_number(digest, static_cast<std::int64_t>(spec.merges.size()));
  digest.add(std::as_bytes(std::span(spec.merges)));
  add_number(digest, spec.ignore_merges ? 1 : 0);
  add_number(digest, static_cast<std::int64_t>(spec.normalizer.size()));
  for (const NormalizerStep& step : spec.normalizer) {
    add_number(digest, static_cast<std::int64_t>(step.kind) * 4 + static_cast<std::int64_t>(step.form));
    add_number(digest, (step.left ? 4 : 0) + (step.right ? 2 : 0) + (step.is_regex ? 1 : 0));
    add_field(digest, step.pattern);
    add_field(digest, step.content);
  }
  add_number(digest, static_cast<std::int64_t>(spec.steps.size()));
  for (const PretokenizerStep& step : spec.steps) {
    add_number(digest, static_cast<std::int64_t>(step.kind));
    add_number(digest, static_cast<std::int64_t>(step.behavior) * 2 + (step.invert ? 1 : 0));
    add_number(digest, static_cast<std::int64_t>(step.prepend) * 2 + (step.cuts ? 1 : 0));
    add_field(digest, step.pattern);
    add_field(digest, step.marker);
  }
  for (const AddedToken& token : spec.added) {
    add_number(digest, token.id);
    add_field(digest, token.content);
    add_number(digest, (token.single_word ? 8 : 0) + (token.lstrip ? 4 : 0) + (token.rstrip ? 2 : 0) +
                           (token.normalized ? 1 : 0));
  }
  add_number(digest, spec.end_of_document);
  return digest.hex();
}

}  // namespace trireme::data
