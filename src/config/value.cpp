#include "config/value.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "base/error.h"
#include "config/suggest.h"

namespace trireme::config {
namespace {

std::string what_is(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::null: return "empty";
    case YamlNode::Kind::list: return "a list";
    case YamlNode::Kind::block: return "a block of keys";
    case YamlNode::Kind::scalar: return node.quoted ? "the text " + shown(node.text) : shown(node.text);
  }
  return {};
}

std::string takes(const Key& key) {
  const bool needs_article = key.type == Type::number || key.type == Type::text || key.type == Type::texts ||
                             key.type == Type::path || key.type == Type::choices;
  return std::string("it takes ") + (key.type == Type::integer ? "an " : needs_article ? "a " : "") + type_text(key);
}

[[noreturn]] void wrong_type(const Key& key, const YamlNode& node, const std::string& place, std::string remedy = {}) {
  if (remedy.empty()) remedy = takes(key);
  throw Error(2102, place, std::string(key.name) + " is " + what_is(node), remedy);
}

[[noreturn]] void out_of_range(const Key& key, const YamlNode& node, const std::string& place) {
  throw Error(2105, place, std::string(key.name) + " is " + what_is(node) + ", which is out of range", takes(key));
}

[[noreturn]] void not_there_yet(const Key& key, const YamlNode& node, const std::string& place) {
  std::string remedy = key.tier == Tier::not_yet ? "remove the key" : takes(key);
  if (key.tier == Tier::not_yet && !key.inert.empty()) remedy += ", or set it to " + std::string(key.inert.front());
  throw Error(2190, place, std::string(key.name) + " is " + what_is(node) + ": this version cannot do that, not yet",
              remedy);
}

void check_range(const Key& key, double value, const YamlNode& node, const std::string& place) {
  const Range& range = key.range;
  const bool low_enough = range.below_high ? value < range.high : value <= range.high;
  const bool high_enough = range.above_low ? value > range.low : value >= range.low;
  if (!std::isfinite(value) || !low_enough || !high_enough) out_of_range(key, node, place);
}

void check_unquoted(const Key& key, const YamlNode& node, const std::string& place) {
  if (node.quoted) wrong_type(key, node, place, takes(key) + ", without quotes");
}

Value read_integer(const Key& key, const YamlNode& node, const std::string& place) {
  try {
    const auto value = parse_integer(node.text);
    if (!value) {
      if (!std::isfinite(parse_number(node.text).value_or(0))) out_of_range(key, node, place);
      const bool has_leading_zero =
          node.text.size() > 1 && node.text.find_first_not_of("0123456789") == std::string::npos;
      const bool has_underscore = node.text.find('_') != std::string::npos;
      wrong_type(key, node, place,
                 has_leading_zero ? "write it without the leading zero (or 0o" + node.text + " for an octal number)"
                 : has_underscore ? "write digits without underscores; 5e8 is fine"
                                  : "");
    }
    check_range(key, static_cast<double>(*value), node, place);
    return *value;
  } catch (const std::out_of_range&) {
    out_of_range(key, node, place);
  }
}

Value read_number(const Key& key, const YamlNode& node, const std::string& place) {
  try {
    const auto value = parse_number(node.text);
    if (!value) wrong_type(key, node, place);
    check_range(key, *value, node, place);
    return *value;
  } catch (const std::out_of_range&) {
    out_of_range(key, node, place);
  }
}

Value read_text(const Key& key, const YamlNode& node, const std::string& place) {
  if (node.text.find('\0') != std::string::npos) wrong_type(key, node, place, "a text has no NUL characters");
  if (key.type == Type::path && node.text.starts_with('~')) {
    wrong_type(key, node, place, "~ is not expanded here: write the folder out");
  }
  if (node.text.empty() && !key.optional) {
    wrong_type(key, node, place, "it needs a " + type_text(key) + ", or leave the key away");
  }
  if (node.text.empty()) return {};
  return node.text;
}

Value read_choice(const Key& key, const YamlNode& node, const std::string& place) {
  std::string word = folded(node.text);
  for (const Synonym& synonym : key.value_synonyms) {
    if (word == synonym.word) word = std::string(synonym.meaning);
  }
  const auto is_in = [&](const std::vector<std::string_view>& words) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  if (is_in(key.choices)) return word;
  if (is_in(key.choices_not_yet)) not_there_yet(key, node, place);
  for (const Synonym& refused : key.refused) {
    if (word == refused.word) wrong_type(key, node, place, std::string(refused.meaning) + "; " + takes(key));
  }
  std::vector<std::string> known(key.choices.begin(), key.choices.end());
  known.insert(known.end(), key.choices_not_yet.begin(), key.choices_not_yet.end());
  const std::vector<std::string> near = nearest(word, known);
  wrong_type(key, node, place, takes(key) + (near.empty() ? "" : "; did you mean " + near.front() + "?"));
}

bool adds_nothing(const Key& key, const YamlNode& item) {
  return std::any_of(key.value_synonyms.begin(), key.value_synonyms.end(), [&](const Synonym& synonym) {
    return synonym.meaning.empty() && synonym.word == folded(item.text);
  });
}

// Each word once, in the schema's order, so that equal lists are equal values.
Value read_choices(const Key& key, const YamlNode& node, const std::string& place) {
  if (node.kind == YamlNode::Kind::block) wrong_type(key, node, place);
  const std::vector<YamlNode> one = {node};
  std::vector<std::string> found;
  for (const YamlNode& item : node.kind == YamlNode::Kind::list ? node.items : one) {
    if (item.kind != YamlNode::Kind::scalar) wrong_type(key, item, place);
    if (!adds_nothing(key, item)) found.push_back(std::get<std::string>(read_choice(key, item, place)));
  }
  Words words;
  for (const std::string_view choice : key.choices) {
    if (std::find(found.begin(), found.end(), choice) != found.end()) words.emplace_back(choice);
  }
  return words;
}

Value read_texts(const Key& key, const YamlNode& node, const std::string& place) {
  if (node.kind == YamlNode::Kind::block) wrong_type(key, node, place);
  if (node.kind == YamlNode::Kind::scalar && node.text.empty() && key.optional) return Words();
  const std::vector<YamlNode> one = {node};
  Words words;
  for (const YamlNode& item : node.kind == YamlNode::Kind::list ? node.items : one) {
    if (item.kind != YamlNode::Kind::scalar || item.text.empty()) wrong_type(key, item, place);
    if (!adds_nothing(key, item)) words.push_back(std::get<std::string>(read_text(key, item, place)));
  }
  return words;
}

Value read_typed(const Key& key, const YamlNode& node, const std::string& place) {
  if (key.type == Type::choices) return read_choices(key, node, place);
  if (key.type == Type::texts) return read_texts(key, node, place);
  if (node.kind != YamlNode::Kind::scalar) wrong_type(key, node, place);
  switch (key.type) {
    case Type::boolean: {
      check_unquoted(key, node, place);
      const auto value = parse_bool(node.text);
      if (!value) wrong_type(key, node, place);
      return *value;
    }
    case Type::integer: return read_integer(key, node, place);
    case Type::number: return read_number(key, node, place);
    case Type::choice: return read_choice(key, node, place);
    case Type::texts:
    case Type::choices: return {};  // above: a list is no scalar
    case Type::text:
    case Type::path:
    case Type::any: return read_text(key, node, place);
  }
  return {};
}

bool says_off(const Key& key, const YamlNode& node, const std::string& place) {
  if (node.kind == YamlNode::Kind::null) return true;
  if (key.type == Type::any && node.kind != YamlNode::Kind::scalar) {
    return node.entries.empty() && std::all_of(node.items.begin(), node.items.end(),
                                               [&](const YamlNode& item) { return says_off(key, item, place); });
  }
  const Value value = read_typed(key, node, place);
  return std::any_of(key.inert.begin(), key.inert.end(), [&](std::string_view word) {
    if (key.type == Type::any && parse_bool(word)) return parse_bool(node.text) == parse_bool(word);
    if (std::holds_alternative<std::string>(value)) return folded(std::get<std::string>(value)) == word;
    return read_typed(key, YamlNode{.kind = YamlNode::Kind::scalar, .text = std::string(word)}, place) == value;
  });
}

}  // namespace

Value read_value(const Key& key, const YamlNode& node, const std::string& place) {
  if (key.tier == Tier::no_effect || key.tier == Tier::foreign) return {};
  if (key.tier == Tier::not_yet) {
    if (!says_off(key, node, place)) not_there_yet(key, node, place);
    return {};
  }
  const bool is_number = key.type == Type::integer || key.type == Type::number;
  if (key.optional && is_number && node.kind == YamlNode::Kind::scalar && node.text == "None") return {};
  if (node.kind == YamlNode::Kind::null) {
    if (key.optional) return {};
    if (key.type == Type::choices || key.type == Type::texts) return Words();
    wrong_type(key, node, place, takes(key) + "; leave the key away for its default");
  }
  return read_typed(key, node, place);
}

Value parse_default(const Key& key) {
  const YamlNode node{.kind = YamlNode::Kind::scalar, .text = std::string(key.fallback)};
  return read_typed(key, node, "the schema's default of " + std::string(key.name));
}

}  // namespace trireme::config
