#include "config/schema.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <map>

#include "base/error.h"
#include "config/schema_rows.h"

namespace trireme::config {
namespace {

using Index = std::map<std::string, Match, std::less<>>;

void add_name(Index& index, std::string name, Match match) {
  const bool is_new = index.emplace(name, match).second;
  TRIREME_CHECK(is_new, "the schema has the name " + name + " twice");
}

// Names that may stand at the top of a file too, as Trainer and the training guides have them.
void add_lifted_names(Index& index) {
  constexpr std::string_view kLifted[] = {"training", "distributed", "checkpoint", "monitor"};
  Index lifted;
  for (const auto& [name, match] : index) {
    const std::string_view leaf = leaf_of(name), block = std::string_view(name).substr(0, name.find('.'));
    const bool is_in_block = block.size() + 1 + leaf.size() == name.size();
    if (!is_in_block || std::find(std::begin(kLifted), std::end(kLifted), block) == std::end(kLifted)) continue;
    const auto [first, is_new] = lifted.emplace(leaf, Match{match.key, match.alias, true});
    if (is_new) continue;
    if (first->second.key != match.key)
      first->second.key = nullptr;
    else if (match.alias == nullptr)
      first->second.alias = nullptr;
  }
  for (const auto& [leaf, match] : lifted) {
    if (match.key != nullptr) index.emplace(leaf, match);
  }
}

Index make_index() {
  Index index;
  for (const Key& key : keys()) add_name(index, std::string(key.name), {&key, nullptr});
  for (const Key& key : keys()) {
    for (const Alias& alias : key.aliases) add_name(index, full_name(key, alias), {&key, &alias});
  }
  add_lifted_names(index);
  return index;
}

const Index& names() {
  static const Index index = make_index();
  return index;
}

std::string number_text(double value) {
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return {text, end};
}

std::string double_quoted(std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      result += {'\\', c};
    } else if (byte < 0x20 || byte == 0x7F) {
      result += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      result += c;
    }
  }
  return result + "\"";
}

std::string bound_text(double bound) {
  const bool is_whole = bound == std::floor(bound) && std::abs(bound) < 1e16;
  return is_whole ? std::to_string(static_cast<std::int64_t>(bound)) : number_text(bound);
}

std::string joined(const std::vector<std::string_view>& words) {
  std::string result;
  for (const std::string_view word : words) result += (result.empty() ? "" : ", ") + std::string(word);
  return result;
}

std::string range_text(const Range& range) {
  std::string result;
  if (range.low > -std::numeric_limits<double>::infinity()) {
    result += (range.above_low ? " above " : " from ") + bound_text(range.low);
  }
  if (range.high < std::numeric_limits<double>::infinity()) {
    result += (range.below_high ? " below " : " to ") + bound_text(range.high);
  }
  return result;
}

}  // namespace

const std::vector<Key>& keys() {
  static const std::vector<Key> table = [] {
    std::vector<Key> rows = model_and_data_keys();
    append(rows, training_and_run_keys());
    append(rows, later_keys());
    append(rows, trainer_keys());
    append(rows, foreign_keys());
    return rows;
  }();
  return table;
}

std::string_view block_of(std::string_view name) {
  const std::size_t dot = name.find('.');
  return dot == std::string_view::npos ? std::string_view() : name.substr(0, dot);
}

std::string_view leaf_of(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? name : name.substr(dot + 1);
}

std::string full_name(const Key& key, const Alias& alias) {
  const std::string_view block = block_of(key.name);
  if (block.empty() || alias.name.find('.') != std::string_view::npos) return std::string(alias.name);
  return std::string(block) + "." + std::string(alias.name);
}

Match find_key(std::string_view name) {
  const auto found = names().find(name);
  return found == names().end() ? Match{} : found->second;
}

const Key& key_named(std::string_view name) {
  const Match match = find_key(name);
  TRIREME_CHECK(match.key != nullptr && match.alias == nullptr && !match.is_lifted,
                "no key " + std::string(name) + " in the schema");
  return *match.key;
}

std::vector<std::string_view> block_names() {
  std::vector<std::string_view> names;
  for (const Key& key : keys()) {
    const std::string_view block = block_of(key.name);
    if (!block.empty() && std::find(names.begin(), names.end(), block) == names.end()) names.push_back(block);
  }
  return names;
}

bool is_block(std::string_view name) {
  const std::string prefix = std::string(name) + ".";
  const auto next = names().lower_bound(prefix);
  return next != names().end() && next->first.starts_with(prefix);
}

std::string to_text(const Value& value) {
  struct Writer {
    std::string operator()(std::monostate) const { return "null"; }
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(std::int64_t v) const { return std::to_string(v); }
    std::string operator()(double v) const { return number_text(v); }
    std::string operator()(const std::string& v) const { return double_quoted(v); }
    std::string operator()(const Words& v) const {
      std::string list;
      for (const std::string& word : v) list += (list.empty() ? "" : ", ") + double_quoted(word);
      return "[" + list + "]";
    }
  };
  return std::visit(Writer{}, value);
}

std::string default_text(const Key& key) {
  if (key.required) return "required";
  if (!key.rule.empty()) return std::string(key.rule);
  if (key.optional) return "unset";
  return std::string(key.fallback);
}

std::string type_text(const Key& key) {
  switch (key.type) {
    case Type::boolean: return "true or false";
    case Type::integer: return "integer" + range_text(key.range);
    case Type::number: return "number" + range_text(key.range);
    case Type::text: return "text";
    case Type::texts: return "text or list of texts";
    case Type::path: return "path";
    case Type::choice: return (key.choices.size() > 1 ? "one of " : "") + joined(key.choices);
    case Type::choices: return "list of " + joined(key.choices);
    case Type::any: return "text, list or block";
  }
  return {};
}

}  // namespace trireme::config
