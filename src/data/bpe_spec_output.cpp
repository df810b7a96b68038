// tokenizer.json: what happens to the ids after the model.
#include <algorithm>

#include "base/error.h"
#include "data/bpe_spec_json.h"

namespace trireme::data {
namespace {

constexpr std::size_t kMaxSteps = 64;

// Steps as they come; a Sequence gives its parts.
void flatten(const JsonPlace& decoder, std::vector<JsonPlace>& steps) {
  if (decoder["type"].text() != "Sequence") {
    if (steps.size() == kMaxSteps) decoder.not_supported("a decoder of more than 64 steps");
    steps.push_back(decoder);
    return;
  }
  decoder.only_keys({"type", "decoders"});
  const JsonPlace parts = decoder["decoders"];
  for (std::size_t i = 0; i < parts.array_size(); ++i) flatten(parts.at(i), steps);
}

DecoderStep read_replace(const JsonPlace& step) {
  step.only_keys({"type", "pattern", "content"});
  const JsonPlace pattern = step["pattern"];
  pattern.only_keys({"String"});
  const std::string& text = pattern["String"].text();
  if (text.empty()) pattern.not_supported("an empty pattern");
  return {.kind = DecoderStep::Kind::replace, .pattern = text, .content = step["content"].text()};
}

DecoderStep read_strip(const JsonPlace& step) {
  step.only_keys({"type", "content", "start", "stop"});
  DecoderStep found{.kind = DecoderStep::Kind::strip, .pattern = read_character(step["content"])};
  const std::int64_t start = step["start"].integer();
  if (start < 0 || start > 1'000'000) step["start"].not_supported("this many characters to strip");
  if (step["stop"].integer() != 0) step["stop"].not_supported("stripping the end of a text");
  found.count = static_cast<std::int32_t>(start);
  return found;
}

DecoderStep read_metaspace(const JsonPlace& step) {
  step.only_keys({"type", "replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"});
  return {.kind = DecoderStep::Kind::metaspace,
          .pattern = read_character(step["replacement"]),
          .at_front_nothing = read_prepend_scheme(step) != PretokenizerStep::Prepend::never};
}

// Token by token first, then <0x41>, then all tokens as one: any other order means something else.
DecoderSpec read_character_decoder(const std::vector<JsonPlace>& steps) {
  DecoderSpec spec;
  bool fused = false;
  for (const JsonPlace& step : steps) {
    const std::string& type = step["type"].text();
    if (type == "ByteFallback") {
      step.only_keys({"type"});
      if (fused) step.not_supported("ByteFallback after Fuse");
      spec.byte_tokens = true;
    } else if (type == "Fuse") {
      step.only_keys({"type"});
      fused = true;
    } else if (type == "Strip" && fused) {
      const DecoderStep strip = read_strip(step);
      if (spec.strip_count > 0) step.not_supported("a second Strip after Fuse");
      spec.strip_front = strip.pattern;
      spec.strip_count = strip.count;
    } else if (type == "Replace" || type == "Strip" || type == "Metaspace") {
      if (fused || spec.byte_tokens) step.not_supported("the decoder " + type + " after ByteFallback or Fuse");
      spec.each_token.push_back(type == "Replace" ? read_replace(step)
                                : type == "Strip" ? read_strip(step)
                                                  : read_metaspace(step));
    } else {
      step.not_supported("the decoder " + type + (type == "ByteLevel" ? " without a ByteLevel pre-tokenizer" : ""));
    }
  }
  return spec;
}

std::int32_t known_id(const JsonPlace& value, const BpeSpec& spec) {
  const std::int64_t id = value.integer();
  if (id < 0 || id >= static_cast<std::int64_t>(spec.tokens.size()) || !spec.tokens[id].exists) {
    throw Error(4113, value.place(), "no token has id " + std::to_string(id),
                "post-processor and vocabulary do not belong together");
  }
  return static_cast<std::int32_t>(id);
}

void read_template(const JsonPlace& processor, BpeSpec& spec) {
  processor.only_keys({"type", "single", "pair", "special_tokens"});
  const JsonPlace single = processor["single"];
  bool seen_text = false;
  for (std::size_t i = 0; i < single.array_size(); ++i) {
    const JsonPlace part = single.at(i);
    part.only_keys({"Sequence", "SpecialToken"});
    if (!part["Sequence"].is_null()) {
      if (seen_text) part.not_supported("a template that repeats the text");
      seen_text = true;
      continue;
    }
    const std::string& name = part["SpecialToken"]["id"].text();
    const JsonPlace token = processor["special_tokens"][name.c_str()];
    if (token.is_null()) {
      throw Error(4113, part.place(), "the template uses \"" + name + "\", which special_tokens does not define");
    }
    const JsonPlace ids = token["ids"];
    for (std::size_t j = 0; j < ids.array_size(); ++j) {
      (seen_text ? spec.special.after : spec.special.before).push_back(known_id(ids.at(j), spec));
    }
  }
  if (!seen_text) throw Error(4113, single.place(), "the template has no place for the text");
}

// ["</s>", 2]
std::int32_t read_pair(const JsonPlace& pair, const BpeSpec& spec) {
  if (pair.array_size() != 2) pair.wrong_type("a token and its id");
  return known_id(pair.at(1), spec);
}

}  // namespace

std::string read_character(const JsonPlace& value) {
  const std::string& text = value.text();
  const auto starts = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  if (std::count_if(text.begin(), text.end(), starts) != 1) value.wrong_type("one character");
  return text;
}

void read_decoder(const JsonPlace& decoder, BpeSpec& spec) {
  const bool byte_level = spec.alphabet.kind == AlphabetKind::bytes;
  if (decoder.is_null()) {
    spec.decoder.spaces_between = !byte_level;
    return;
  }
  std::vector<JsonPlace> steps;
  flatten(decoder, steps);
  if (!byte_level) {
    spec.decoder = read_character_decoder(steps);
    spec.decoder.place = decoder.place();
    return;
  }
  if (steps.size() != 1 || steps[0]["type"].text() != "ByteLevel") {
    decoder.not_supported("a decoder other than ByteLevel after a ByteLevel pre-tokenizer");
  }
}

void read_post_processor(const JsonPlace& processor, BpeSpec& spec) {
  if (processor.is_null()) return;
  const std::string& type = processor["type"].text();
  if (type == "ByteLevel") return;  // moves offsets, which are not kept here
  if (type == "Sequence") {
    const JsonPlace parts = processor["processors"];
    for (std::size_t i = 0; i < parts.array_size(); ++i) read_post_processor(parts.at(i), spec);
    return;
  }
  if (type != "TemplateProcessing" && type != "RobertaProcessing" && type != "BertProcessing") {
    processor.not_supported("the post-processor " + type);
  }
  if (!spec.special.before.empty() || !spec.special.after.empty()) {
    processor.not_supported("a second post-processor that adds tokens");
  }
  if (type == "TemplateProcessing") return read_template(processor, spec);
  spec.special.before = {read_pair(processor["cls"], spec)};
  spec.special.after = {read_pair(processor["sep"], spec)};
}

}  // namespace trireme::data
