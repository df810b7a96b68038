// A plan as YAML, as a table and as a digest.
#include <algorithm>

#include "base/hash.h"
#include "config/document.h"
#include "config/plan.h"
#include "config/schema.h"

namespace trireme::config {
namespace {

Value value_of(const Plan& plan, const Key& key) {
  return key.field.get(plan, key);
}

// As a person reads it: text without quotes where that is clear.
std::string readable(const Value& value) {
  if (std::holds_alternative<std::monostate>(value)) return "unset";
  const auto* text = std::get_if<std::string>(&value);
  return text == nullptr ? to_text(value) : shown(*text);
}

// Keys that the folder of model.path decides are not written: they come from it again.
bool is_open(const Plan& plan, const Key& key) {
  const auto origin = plan.origins.find(std::string(key.name));
  return origin != plan.origins.end() && origin->second.is_of_model;
}

std::string padded(std::string text, std::size_t width) {
  std::size_t characters = 0;
  for (const char c : text) characters += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
  if (characters < width) text.append(width - characters, ' ');
  return text;
}

}  // namespace

std::string to_yaml(const Plan& plan) {
  std::string result;
  std::string_view block;
  for (const Key& key : keys()) {
    if (key.tier != Tier::supported) continue;
    if (block_of(key.name) != block) {
      block = block_of(key.name);
      result += std::string(block) + ":\n";
    }
    if (is_open(plan, key)) continue;
    if (!block.empty()) result += "  ";
    result += std::string(leaf_of(key.name)) + ": " + to_text(value_of(plan, key)) + "\n";
  }
  return result;
}

std::string explain(const Plan& plan) {
  struct Row {
    std::string key, value, origin;
  };
  std::vector<Row> rows;
  std::size_t key_width = 0, value_width = 0;
  for (const Key& key : keys()) {
    if (key.tier != Tier::supported) continue;
    const auto origin = plan.origins.find(std::string(key.name));
    rows.push_back({std::string(key.name), readable(value_of(plan, key)),
                    origin == plan.origins.end() ? "set by the program" : origin->second.place});
    key_width = std::max(key_width, rows.back().key.size());
    value_width = std::max(value_width, std::min<std::size_t>(rows.back().value.size(), 40));
  }
  std::string result;
  for (const Row& row : rows) {
    result += padded(row.key, key_width) + "  " + padded(row.value, value_width) + "  " + row.origin + "\n";
  }
  return result;
}

std::string numeric_digest(const Plan& plan) {
  std::vector<std::string> lines;
  for (const Key& key : keys()) {
    if (key.decides == nullptr || !key.decides(plan)) continue;
    lines.push_back(std::string(key.name) + "=" + to_text(value_of(plan, key)) + "\n");
  }
  std::sort(lines.begin(), lines.end());  // so that the table's order does not matter
  std::string text = "numeric digest 1\n";
  for (const std::string& line : lines) text += line;
  return digest(std::string_view(text));
}

}  // namespace trireme::config
