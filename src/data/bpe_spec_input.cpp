// tokenizer.json: what happens to the text before the model.
#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "data/bpe_spec_json.h"
#include "data/pretokenizer_pattern.h"

namespace trireme::data {
namespace {

constexpr const char* kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Runs of Rust's \w, and runs of what is neither that nor white space.
constexpr const char* kWordPattern =
    R"([\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189}\x{200c}\x{200d}]+|[^\s\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189}\x{200c}\x{200d}]+)";

constexpr std::size_t kMaxSteps = 64;

struct TextPattern {
  std::string text;
  bool is_regex;
  std::string place;
};

TextPattern read_pattern(const JsonPlace& pattern) {
  pattern.only_keys({"Regex", "String"});
  if (pattern.value().size() != 1) pattern.wrong_type("either a Regex or a String");
  const bool is_regex = !pattern["Regex"].is_null();
  return {pattern[is_regex ? "Regex" : "String"].text(), is_regex, pattern.place()};
}

void add_step(const JsonPlace& where, NormalizerStep step, BpeSpec& spec) {
  if (spec.normalizer.size() == kMaxSteps) where.not_supported("a normalizer of more than 64 steps");
  step.place = where.place();
  spec.normalizer.push_back(std::move(step));
}

void read_replace(const JsonPlace& normalizer, BpeSpec& spec) {
  normalizer.only_keys({"type", "pattern", "content"});
  const TextPattern pattern = read_pattern(normalizer["pattern"]);
  const std::string& content = normalizer["content"].text();
  if (pattern.text.empty()) normalizer["pattern"].not_supported("an empty pattern");
  // Later versions of tokenizers put groups in place of $1, earlier ones do not.
  if (pattern.is_regex && content.find('$') != std::string::npos) {
    normalizer["content"].not_supported("a $ in what replaces a regex");
  }
  add_step(normalizer,
           {.kind = NormalizerStep::Kind::replace,
            .pattern = pattern.text,
            .is_regex = pattern.is_regex,
            .content = content},
           spec);
}

void read_normalizer(const JsonPlace& normalizer, BpeSpec& spec) {
  using Kind = NormalizerStep::Kind;
  if (normalizer.is_null()) return;
  const std::string& type = normalizer["type"].text();
  constexpr std::pair<const char*, UnicodeForm> forms[] = {
      {"NFC", UnicodeForm::nfc}, {"NFD", UnicodeForm::nfd}, {"NFKC", UnicodeForm::nfkc}, {"NFKD", UnicodeForm::nfkd}};
  for (const auto& [name, form] : forms) {
    if (type != name) continue;
    normalizer.only_keys({"type"});
    return add_step(normalizer, {.kind = Kind::form, .form = form}, spec);
  }
  if (type == "Sequence") {
    normalizer.only_keys({"type", "normalizers"});
    const JsonPlace parts = normalizer["normalizers"];
    for (std::size_t i = 0; i < parts.array_size(); ++i) read_normalizer(parts.at(i), spec);
  } else if (type == "Lowercase") {
    normalizer.only_keys({"type"});
    add_step(normalizer, {.kind = Kind::lowercase}, spec);
  } else if (type == "Strip") {
    normalizer.only_keys({"type", "strip_left", "strip_right"});
    const bool left = normalizer["strip_left"].boolean(), right = normalizer["strip_right"].boolean();
    add_step(normalizer, {.kind = Kind::strip, .left = left, .right = right}, spec);
  } else if (type == "Prepend") {
    normalizer.only_keys({"type", "prepend"});
    add_step(normalizer, {.kind = Kind::prepend, .content = normalizer["prepend"].text()}, spec);
  } else if (type == "Replace") {
    read_replace(normalizer, spec);
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
  const TextPattern pattern = read_pattern(step["pattern"]);
  return {.pattern = pattern.is_regex ? pattern.text : quote_pattern(pattern.text),
          .behavior = split_behavior(step["behavior"]),
          .invert = step["invert"].boolean(),
          .place = pattern.place};
}

PretokenizerStep read_metaspace(const JsonPlace& step, const BpeSpec& spec) {
  using Prepend = PretokenizerStep::Prepend;
  step.only_keys({"type", "replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"});
  PretokenizerStep found{.kind = PretokenizerStep::Kind::metaspace, .place = step.place()};
  found.marker = read_character(step["replacement"]);
  found.prepend = read_prepend_scheme(step);
  found.cuts = step["split"].boolean(true);
  // Where a piece began before anything was put before the text is what counts there, and that is not kept.
  const bool inserts = !spec.normalizer.empty() ||
                       std::any_of(spec.steps.begin(), spec.steps.end(), [](const PretokenizerStep& earlier) {
                         return earlier.kind == PretokenizerStep::Kind::metaspace;
                       });
  if (found.prepend == Prepend::first && !spec.steps.empty() && inserts) {
    step.not_supported("prepend_scheme first behind a normalizer and a pre-tokenizer, or behind another Metaspace");
  }
  return found;
}

bool read_pre_tokenizer(const JsonPlace& step, BpeSpec& spec);

bool read_pre_tokenizers(const JsonPlace& parts, BpeSpec& spec) {
  for (std::size_t i = 0; i < parts.array_size(); ++i) {
    if (!read_pre_tokenizer(parts.at(i), spec)) continue;
    if (i + 1 < parts.array_size()) parts.at(i + 1).not_supported("a pre-tokenizer after ByteLevel");
    return true;
  }
  return false;
}

// True where it held the byte-level step, which must come last.
bool read_pre_tokenizer(const JsonPlace& step, BpeSpec& spec) {
  using Kind = PretokenizerStep::Kind;
  std::vector<PretokenizerStep>& steps = spec.steps;
  if (steps.size() >= kMaxSteps) step.not_supported("a pre-tokenizer of more than 64 steps");
  const std::string& type = step["type"].text();
  if (type == "Split") {
    steps.push_back(read_split(step));
  } else if (type == "Digits") {
    step.only_keys({"type", "individual_digits"});
    const bool individual = step["individual_digits"].boolean();
    steps.push_back({.kind = Kind::digits,
                     .behavior = individual ? SplitBehavior::isolated : SplitBehavior::contiguous,
                     .place = step.place()});
  } else if (type == "Punctuation") {
    step.only_keys({"type", "behavior"});
    const JsonPlace behavior = step["behavior"];
    steps.push_back({.kind = Kind::punctuation,
                     .behavior = behavior.is_null() ? SplitBehavior::isolated : split_behavior(behavior),
                     .place = step.place()});
  } else if (type == "WhitespaceSplit") {
    step.only_keys({"type"});
    steps.push_back({.pattern = "\\s", .behavior = SplitBehavior::removed, .place = step.place()});
  } else if (type == "Whitespace") {
    step.only_keys({"type"});
    steps.push_back(
        {.pattern = kWordPattern, .behavior = SplitBehavior::removed, .invert = true, .place = step.place()});
  } else if (type == "Metaspace") {
    steps.push_back(read_metaspace(step, spec));
  } else if (type == "ByteLevel") {
    step.only_keys({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    const bool prefix = step["add_prefix_space"].boolean();
    if (step["use_regex"].boolean(true)) {
      append_gpt2_steps(prefix, step.place(), steps);
    } else if (prefix) {
      steps.push_back({.kind = Kind::prefix_space, .place = step.place()});
    }
    return true;
  } else if (type == "Sequence") {
    step.only_keys({"type", "pretokenizers"});
    return read_pre_tokenizers(step["pretokenizers"], spec);
  } else {
    step.not_supported("the pre-tokenizer " + type);
  }
  return false;
}

}  // namespace

PretokenizerStep::Prepend read_prepend_scheme(const JsonPlace& metaspace) {
  using Prepend = PretokenizerStep::Prepend;
  const JsonPlace scheme = metaspace["prepend_scheme"];
  const bool add = metaspace["add_prefix_space"].boolean(true);
  if (scheme.is_null()) return add ? Prepend::always : Prepend::never;
  const std::string& name = scheme.text();
  if (name != "always" && name != "first" && name != "never") scheme.not_supported("the prepend_scheme");
  if (!add && name != "never") metaspace.not_supported("add_prefix_space false with prepend_scheme " + name);
  return name == "always" ? Prepend::always : name == "first" ? Prepend::first : Prepend::never;
}

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
  // transformers, too, leaves both to the call. A file that was saved after a training has them.
  for (const char* key : {"truncation", "padding"}) {
    if (root[key].is_null()) continue;
    if (!root[key].value().is_object()) root[key].wrong_type("an object or null");
    log::info(root[key].place() + " is not applied: the configuration of the data says how long samples are");
  }
  read_normalizer(root["normalizer"], spec);
  const JsonPlace pre_tokenizer = root["pre_tokenizer"];
  const bool byte_level = !pre_tokenizer.is_null() && read_pre_tokenizer(pre_tokenizer, spec);
  spec.alphabet.kind = byte_level ? AlphabetKind::bytes : AlphabetKind::characters;
}

}  // namespace trireme::data
