#include "config/json_schema.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "config/schema.h"
#include "config/value.h"

namespace trireme::config {
namespace {

using Json = nlohmann::ordered_json;

// A schema that takes a word as folded() compares it: any case, "-" for "_".
std::string pattern_of(const std::vector<std::string_view>& words) {
  std::string pattern;
  for (const std::string_view word : words) {
    pattern += pattern.empty() ? "^(" : "|";
    for (const char c : word) {
      const auto byte = static_cast<unsigned char>(c);
      if (c == '_') {
        pattern += "[-_]";
      } else if (std::isalpha(byte) != 0) {
        pattern += {'[', static_cast<char>(std::toupper(byte)), static_cast<char>(std::tolower(byte)), ']'};
      } else if (std::isdigit(byte) != 0) {
        pattern += c;
      } else {
        pattern += {'\\', c};
      }
    }
  }
  return pattern + ")$";
}

// What YAML may make of a word without quotes: true, 32, or the word itself.
void add_typed(Json& values, std::string_view word) {
  if (const auto truth = parse_bool(word)) values.push_back(*truth);
  if (const auto number = parse_integer(word)) values.push_back(*number);
}

// The words, with all that say the same where one is true or false.
std::vector<std::string_view> with_all_truths(const std::vector<std::string_view>& words) {
  std::vector<std::string_view> result = words;
  for (const std::string_view word : words) {
    for (const std::string_view other : {"true", "yes", "on", "false", "no", "off"}) {
      if (parse_bool(word).has_value() && parse_bool(word) == parse_bool(other)) result.push_back(other);
    }
  }
  return result;
}

// One of the words; those in `shown` are offered, in their spelling.
Json words_schema(const std::vector<std::string_view>& shown, const std::vector<std::string_view>& all) {
  Json offered = Json::array(), typed = Json::array();
  for (const std::string_view word : shown) offered.push_back(word);
  for (const std::string_view word : all) add_typed(typed, word);
  Json any = Json::array();
  if (!offered.empty()) any.push_back({{"enum", offered}});
  if (!typed.empty()) any.push_back({{"enum", typed}});
  if (!all.empty()) any.push_back({{"type", "string"}, {"pattern", pattern_of(all)}});
  return {{"anyOf", any}};
}

// A number; or 5e8 as text, which it is to readers of YAML 1.1.
Json number_schema(const char* type, const Range& range) {
  Json number = {{"type", type}};
  const auto set = [&](const char* name, double value) {
    if (!std::isfinite(value)) return;
    const bool is_whole = value == std::floor(value) && std::abs(value) < 1e16;
    number[name] = is_whole ? Json(static_cast<std::int64_t>(value)) : Json(value);
  };
  set(range.above_low ? "exclusiveMinimum" : "minimum", range.low);
  set(range.below_high ? "exclusiveMaximum" : "maximum", range.high);
  const bool is_integer = std::string_view(type) == "integer";
  if (is_integer && !number.contains("maximum")) number["maximum"] = std::numeric_limits<std::int64_t>::max();
  const Json text = {{"type", "string"}, {"pattern", R"(^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$)"}};
  return {{"anyOf", Json::array({number, text})}};
}

std::vector<std::string_view> words_of(const Key& key) {
  std::vector<std::string_view> words = key.choices;
  for (const Synonym& synonym : key.value_synonyms) {
    const bool is_choice = std::find(key.choices.begin(), key.choices.end(), synonym.meaning) != key.choices.end();
    if (is_choice || synonym.meaning.empty()) words.push_back(synonym.word);
  }
  return words;
}

Json one_or_list(const Json& item) {
  return {{"anyOf", Json::array({item, {{"type", "array"}, {"items", item}}})}};
}

Json later_schema(const Key& key) {
  Json schema = words_schema(key.inert, with_all_truths(key.inert));
  schema["anyOf"].push_back({{"type", "null"}});
  if (key.type == Type::any) {
    schema["anyOf"].push_back({{"type", "object"}, {"maxProperties", 0}});
    schema["anyOf"].push_back({{"type", "array"}, {"maxItems", 0}});
  }
  return schema;
}

Json typed_schema(const Key& key) {
  const Json text = {{"type", Json::array({"string", "number", "boolean"})}};
  switch (key.type) {
    case Type::boolean:
      return {{"anyOf", Json::array({{{"type", "boolean"}},
                                     {{"type", "string"}, {"pattern", pattern_of({"yes", "no", "on", "off"})}}})}};
    case Type::integer: return number_schema("integer", key.range);
    case Type::number: return number_schema("number", key.range);
    case Type::choice: return words_schema(key.choices, words_of(key));
    case Type::choices: return one_or_list(words_schema(key.choices, words_of(key)));
    case Type::texts: return one_or_list(text);
    case Type::text:
    case Type::path: return text;
    case Type::any: return Json::object();
  }
  return Json::object();
}

Json value_of(const Value& value) {
  return Json::parse(to_text(value));  // YAML of one line, which of our values is JSON too
}

Json schema_of(const Key& key) {
  if (key.tier == Tier::no_effect) {
    return {{"description", "Has no effect here: " + std::string(key.doc)}, {"deprecated", true}};
  }
  if (key.tier == Tier::foreign) return {{"description", std::string(key.doc)}};  // its table reads the value
  const bool is_later = key.tier == Tier::not_yet;
  Json schema = is_later ? later_schema(key) : typed_schema(key);
  const bool takes_null = !is_later && (key.optional || key.type == Type::choices || key.type == Type::texts);
  if (takes_null) schema = {{"anyOf", Json::array({schema, {{"type", "null"}}})}};
  std::string words = (is_later ? "Not yet: " : "") + std::string(key.doc);
  if (!is_later && key.fallback.empty()) words += " Default: " + default_text(key) + ".";
  schema["description"] = words;
  if (!is_later && !key.fallback.empty()) schema["default"] = value_of(parse_default(key));
  return schema;
}

std::string reference(const Key& key) {
  return "#/$defs/" + std::string(key.name);
}

Json schema_of_alias(const Key& key, const Alias& alias) {
  Json schema;
  if (alias.values.empty()) {
    schema["$ref"] = reference(key);
  } else {
    std::vector<std::string_view> words;
    for (const Synonym& value : alias.values) words.push_back(value.word);
    schema = words_schema({}, with_all_truths(words));
  }
  schema["description"] = std::string(alias.tool) + "'s name of " + std::string(key.name) + ".";
  schema["deprecated"] = true;
  return schema;
}

// Keys by the parts of their names; a key may be a block too, as distributed.offload_optimizer.
struct Block {
  Json schema;  // of the key of this name; null: none
  std::map<std::string, Block, std::less<>> entries;
};

void place(Block& block, std::string_view name, const Json& schema) {
  const std::size_t dot = name.find('.');
  Block& entry = block.entries[std::string(name.substr(0, dot))];
  if (dot == std::string_view::npos) {
    entry.schema = schema;
  } else {
    place(entry, name.substr(dot + 1), schema);
  }
}

const Block& entry_of(const Block& block, std::string_view name) {
  const std::size_t dot = name.find('.');
  const Block& entry = block.entries.find(name.substr(0, dot))->second;
  return dot == std::string_view::npos ? entry : entry_of(entry, name.substr(dot + 1));
}

Json schema_of(const Block& block) {
  if (block.entries.empty()) return block.schema;
  Json properties = Json::object();
  for (const auto& [name, entry] : block.entries) properties[name] = schema_of(entry);
  Json object = {{"type", "object"}, {"additionalProperties", false}, {"properties", std::move(properties)}};
  if (!block.schema.is_null()) return {{"anyOf", Json::array({block.schema, object})}};
  object["type"] = Json::array({"object", "null"});
  return object;
}

}  // namespace

std::string schema_as_json() {
  Json definitions = Json::object();
  Block root;
  std::vector<std::pair<std::string, const Key*>> names;
  const auto add = [&](const Key& key, const std::string& name, const Json& schema) {
    place(root, name, schema);
    names.emplace_back(name, &key);
  };
  for (const Key& key : keys()) {
    definitions[std::string(key.name)] = schema_of(key);
    add(key, std::string(key.name), {{"$ref", reference(key)}});
    for (const Alias& alias : key.aliases) add(key, full_name(key, alias), schema_of_alias(key, alias));
  }
  Json top = schema_of(root)["properties"];
  for (const auto& [name, key] : names) {
    const std::string leaf(leaf_of(name));
    top[name] = schema_of(entry_of(root, name));
    if (find_key(leaf).key == key) top[leaf] = top[name];
  }
  const Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                       {"title", "Configuration of trireme"},
                       {"type", "object"},
                       {"additionalProperties", false},
                       {"properties", top},
                       {"$defs", definitions}};
  return schema.dump(1) + "\n";
}

}  // namespace trireme::config
