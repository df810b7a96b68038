// Plans and errors of a configuration with a tool's file beside it.
#pragma once
#include <fstream>

#include "config/dialects.h"
#include "config/schema.h"
#include "helpers.h"
#include "support/temporary_folder.h"

namespace trireme::config {

inline Plan plan_with_deepspeed(const std::string& json, const Overrides& overrides = {},
                                const std::string& yaml = kSmall) {
  const testing::TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "ds.json";
  std::ofstream(file) << json;
  return parse_plan(yaml, "run.yaml", overrides, {.deepspeed = file});
}

inline std::string refusal_of_deepspeed(const std::string& json, const Overrides& overrides = {},
                                        const std::string& yaml = kSmall) {
  try {
    plan_with_deepspeed(json, overrides, yaml);
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "accepted: " << json;
  return {};
}

// The value of a key of ours as text, without quotes.
inline std::string value_of(const Plan& plan, std::string_view key) {
  const Key& row = key_named(key);
  const Value value = row.field.get(plan, row);
  return std::holds_alternative<std::string>(value) ? std::get<std::string>(value) : to_text(value);
}

// {"a": {"b": VALUE}} of "a.b".
inline std::string nested(const std::string& name, const std::string& value) {
  const std::size_t dot = name.find('.');
  if (dot == std::string::npos) return "{\"" + name + "\": " + value + "}";
  return "{\"" + name.substr(0, dot) + "\": " + nested(name.substr(dot + 1), value) + "}";
}

}  // namespace trireme::config
