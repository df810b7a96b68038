// The JSON Schema accepts of each key what the reader accepts, word for word.
#include "config/json_schema.h"

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <stdexcept>

#include "base/file.h"
#include "config/document.h"
#include "config/schema.h"
#include "config/settings.h"
#include "config/value.h"
#include "helpers.h"

namespace trireme::config {
namespace {

using Json = nlohmann::json;

const Json& the_schema() {
  static const Json schema = Json::parse(schema_as_json());
  return schema;
}

bool has_type(const Json& value, const std::string& type) {
  if (type == "integer") return value.is_number() && std::floor(value.get<double>()) == value.get<double>();
  if (type == "number") return value.is_number();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "array") return value.is_array();
  if (type == "object") return value.is_object();
  if (type == "null") return value.is_null();
  ADD_FAILURE() << "an unknown type: " << type;
  return false;
}

bool is_valid(const Json& value, const Json& schema);

// One keyword of draft 2020-12; those that only inform are true.
bool holds(const std::string& keyword, const Json& rule, const Json& value, const Json& schema) {
  if (keyword == "$ref") {
    return is_valid(value, the_schema()["$defs"].at(rule.get<std::string>().substr(std::string("#/$defs/").size())));
  }
  if (keyword == "type") {
    if (rule.is_string()) return has_type(value, rule);
    return std::any_of(rule.begin(), rule.end(), [&](const Json& type) { return has_type(value, type); });
  }
  if (keyword == "anyOf") {
    return std::any_of(rule.begin(), rule.end(), [&](const Json& each) { return is_valid(value, each); });
  }
  if (keyword == "enum") return std::find(rule.begin(), rule.end(), value) != rule.end();
  if (keyword == "pattern") {
    static std::map<std::string, std::regex> compiled;
    const auto regex = compiled.try_emplace(rule, rule.get<std::string>()).first;
    return !value.is_string() || std::regex_search(value.get<std::string>(), regex->second);
  }
  if (keyword == "minimum") return !value.is_number() || value >= rule;
  if (keyword == "maximum") return !value.is_number() || value <= rule;
  if (keyword == "exclusiveMinimum") return !value.is_number() || value > rule;
  if (keyword == "exclusiveMaximum") return !value.is_number() || value < rule;
  if (keyword == "maxProperties") return !value.is_object() || value.size() <= rule;
  if (keyword == "maxItems") return !value.is_array() || value.size() <= rule;
  if (keyword == "items") {
    return !value.is_array() ||
           std::all_of(value.begin(), value.end(), [&](const Json& item) { return is_valid(item, rule); });
  }
  if (keyword == "properties" && value.is_object()) {
    return std::all_of(value.items().begin(), value.items().end(), [&](const auto& entry) {
      return !rule.contains(entry.key()) || is_valid(entry.value(), rule[entry.key()]);
    });
  }
  if (keyword == "additionalProperties" && value.is_object()) {
    return std::all_of(value.items().begin(), value.items().end(),
                       [&](const auto& entry) { return schema["properties"].contains(entry.key()); });
  }
  static const std::set<std::string> informs = {"description", "default", "deprecated", "title",
                                                "$schema",     "$defs",   "properties", "additionalProperties"};
  EXPECT_TRUE(informs.contains(keyword)) << keyword;
  return true;
}

bool is_valid(const Json& value, const Json& schema) {
  return std::all_of(schema.items().begin(), schema.items().end(),
                     [&](const auto& entry) { return holds(entry.key(), entry.value(), value, schema); });
}

// A node as an editor sees it, which types scalars as YAML 1.2 does.
Json as_editors_see(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::null: return nullptr;
    case YamlNode::Kind::list: {
      Json list = Json::array();
      for (const YamlNode& item : node.items) list.push_back(as_editors_see(item));
      return list;
    }
    case YamlNode::Kind::block: {
      Json object = Json::object();
      for (const YamlNode::Entry& entry : node.entries) object[entry.key] = as_editors_see(entry.value);
      return object;
    }
    case YamlNode::Kind::scalar: break;
  }
  if (node.quoted) return node.text;
  const std::string word = folded(node.text);
  if (word == "true" || word == "false") return word == "true";
  try {
    if (const auto whole = parse_integer(node.text)) return *whole;
  } catch (const std::out_of_range&) {
    return parse_number(node.text).value_or(0);
  }
  if (const auto number = parse_number(node.text)) return *number;
  return node.text;
}

// name: value, or with dots as blocks in blocks.
YamlNode block_of_one(const std::string& name, const YamlNode& value, bool nested) {
  const std::size_t dot = nested ? name.find('.') : std::string::npos;
  YamlNode block{.kind = YamlNode::Kind::block};
  block.entries.push_back(
      {name.substr(0, dot), {}, dot == std::string::npos ? value : block_of_one(name.substr(dot + 1), value, true)});
  return block;
}

bool is_read(const YamlNode& root) {
  Settings settings;
  try {
    take_document(root, "run.yaml", settings);
  } catch (const Error&) {
    return false;
  }
  return true;
}

std::vector<YamlNode> values_to_try() {
  std::set<std::string> words = {"true", "False", "yes",      "Off",        "none",  "0",          "1",
                                 "-1",   "0.5",   "-0.5",     "5e8",        "1e20",  "2.5e-7",     "cpu",
                                 "gloo", "auto",  "BFloat16", "Full-Shard", "wandb", "Tensorboard"};
  for (const Key& key : keys()) {
    words.insert(key.choices.begin(), key.choices.end());
    words.insert(key.choices_not_yet.begin(), key.choices_not_yet.end());
    words.insert(key.inert.begin(), key.inert.end());
    for (const Synonym& synonym : key.value_synonyms) words.emplace(synonym.word);
  }
  std::vector<YamlNode> values;
  for (const std::string& word : words) values.push_back({.kind = YamlNode::Kind::scalar, .text = word});
  for (const std::size_t from : {0U, 7U, 30U}) {
    YamlNode list{.kind = YamlNode::Kind::list};
    list.items = {values[from], values[from + 1]};
    values.push_back(list);
  }
  for (const char* word : {"tensorboard", "none"}) {
    YamlNode list{.kind = YamlNode::Kind::list};
    list.items = {{.kind = YamlNode::Kind::scalar, .text = word}};
    values.push_back(list);
  }
  values.push_back({.kind = YamlNode::Kind::null});
  values.push_back({.kind = YamlNode::Kind::list});
  values.push_back({.kind = YamlNode::Kind::block});
  return values;
}

TEST(JsonSchema, AcceptsOfEachKeyWhatTheReaderAccepts) {
  const std::vector<YamlNode> values = values_to_try();
  int accepted = 0, refused = 0;
  const auto compare = [&](const std::string& name) {
    for (const YamlNode& value : values) {
      for (const bool nested : {false, true}) {
        const YamlNode root = block_of_one(name, value, nested);
        const bool reads = is_read(root);
        EXPECT_EQ(is_valid(as_editors_see(root), the_schema()), reads) << as_editors_see(root);
        (reads ? accepted : refused) += 1;
      }
    }
  };
  std::set<std::string> names;
  for (const Key& key : keys()) {
    names.emplace(key.name);
    for (const Alias& alias : key.aliases) names.insert(full_name(key, alias));
  }
  for (const std::string& name : std::set(names)) names.emplace(leaf_of(name));
  for (const std::string& name : names) compare(name);
  EXPECT_GT(accepted, 2000);
  EXPECT_GT(refused, 5000);
  std::printf("%d accepted, %d refused by both\n", accepted, refused);
}

TEST(JsonSchema, TakesWholeConfigurationsAndRefusesWrongOnes) {
  const auto check = [](const std::string& yaml) {
    return is_valid(as_editors_see(read_document(yaml, "run.yaml")), the_schema());
  };
  EXPECT_TRUE(check(read_file(std::string(TRIREME_SOURCE_DIR) + "/configs/quickstart.yaml")));
  EXPECT_TRUE(check(kSmall));
  EXPECT_TRUE(check(to_yaml(plan_of(kSmall))));
  EXPECT_TRUE(check("training:\n"));
  EXPECT_FALSE(check("trainin:\n  max_steps: 10\n"));
  EXPECT_FALSE(check("training:\n  max_step: 10\n"));
  EXPECT_FALSE(check("training: 10\n"));
  EXPECT_FALSE(check("training:\n  max_steps: ten\n"));
  EXPECT_FALSE(check("training:\n  max_steps: 0\n"));
  EXPECT_FALSE(check("training.max_steps: 1.5\n"));
  EXPECT_FALSE(check("distributed:\n  tp: 2\n"));
}

TEST(JsonSchema, TellsTypesDefaultsAndMeanings) {
  for (const Key& key : keys()) {
    const Json& definition = the_schema()["$defs"][std::string(key.name)];
    EXPECT_NE(definition["description"].get<std::string>().find(key.doc), std::string::npos) << key.name;
    if (key.tier != Tier::supported || key.fallback.empty()) continue;
    ASSERT_TRUE(definition.contains("default")) << key.name;
    EXPECT_TRUE(is_valid(definition["default"], definition)) << key.name << ": " << definition["default"];
  }
  EXPECT_EQ(the_schema()["$defs"]["training.learning_rate"]["default"], 3e-4);
  EXPECT_EQ(the_schema()["$defs"]["distributed.strategy"]["default"], "ddp");
  EXPECT_EQ(the_schema()["properties"]["training"]["properties"]["batch_size"]["deprecated"], true);
}

}  // namespace
}  // namespace trireme::config
