#include "config/plan.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "config/checks.h"
#include "config/dialects.h"
#include "config/document.h"
#include "config/flat.h"
#include "config/json.h"
#include "config/merge.h"
#include "config/schema.h"
#include "config/settings.h"
#include "config/value.h"
#include "config/wrap_classes.h"

namespace trireme::config {
namespace {

std::string default_name(const std::string& place) {
  std::string name = std::filesystem::path(place).stem().string().substr(0, 64);
  for (char& c : name) {
    const bool legal =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
    if (!legal) c = '-';
  }
  name.erase(0, name.find_first_not_of('.'));
  return name.empty() ? "run" : name;
}

void set(Plan& plan, const Key& key, const Value& value, Origin origin) {
  key.field.set(plan, key, value);
  plan.origins[std::string(key.name)] = std::move(origin);
}

// Whether the folder of model.path decides the key.
bool comes_from_model(const Plan& plan, const Key& key) {
  return !plan.model.path.empty() && key.tier == Tier::supported && block_of(key.name) == "model" &&
         key.name != "model.path";
}

bool has_rule(const Key& key) {
  return !key.rule.empty();
}

void check_nothing_missing(const Plan& plan, const std::string& place) {
  std::string missing;
  for (const Key& key : keys()) {
    if (!key.required || comes_from_model(plan, key) || plan.origins.contains(std::string(key.name))) continue;
    missing += (missing.empty() ? "" : ", ") + std::string(key.name);
  }
  if (!missing.empty()) {
    throw Error(2106, place, "required but not set: " + missing,
                "set them in the file, or on the command line as key=value; docs/configuration.md has every key");
  }
}

// Plain defaults first: values with a rule follow from them, and from those before them in the table.
void set_defaults(Plan& plan, const std::string& place) {
  const Origin origin{"default", true};
  for (const Key& key : keys()) {
    const std::string name(key.name);
    if (comes_from_model(plan, key) && !plan.origins.contains(name)) {
      plan.origins[name] = {.place = plan.origins.at("model.path").place, .is_default = true, .is_of_model = true};
    }
  }
  const auto is_open = [&](const Key& key) {
    return key.tier == Tier::supported && !comes_from_model(plan, key) && !plan.origins.contains(std::string(key.name));
  };
  for (const Key& key : keys()) {
    if (is_open(key) && !has_rule(key)) set(plan, key, key.optional ? Value() : parse_default(key), origin);
  }
  for (const Key& key : keys()) {
    if (is_open(key)) set(plan, key, key.derive == nullptr ? Value(default_name(place)) : key.derive(plan), origin);
  }
}

void set_what_waits_for_width(Plan& plan) {
  for (const auto& [name, value_of] : plan.of_hidden_size) {
    set(plan, key_named(name), value_of(plan.model.hidden_size), {plan.origins.at(name).place});
  }
  plan.of_hidden_size.clear();
}

}  // namespace

// At most one byte above the limit, which the reader then refuses: a device or a huge file costs nothing.
std::string read_configuration(const std::filesystem::path& file) {
  const auto fail = [&](const std::string& why) {
    throw Error(2100, file.string(), "the configuration cannot be read: " + why, "check the path of the file");
  };
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) fail("it is a folder");
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> stream(std::fopen(file.c_str(), "rb"), &std::fclose);
  if (stream == nullptr) fail(std::strerror(errno));
  std::string text(kMaxDocumentBytes + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), stream.get()));
  if (std::ferror(stream.get()) != 0) fail(std::strerror(errno));
  return text;
}

Plan load_plan(const std::filesystem::path& file, std::span<const std::string> overrides, const ToolFiles& files) {
  return parse_plan(read_configuration(file), file.string(), overrides, files);
}

Plan parse_plan(const std::string& yaml, const std::string& place, std::span<const std::string> overrides,
                const ToolFiles& files) {
  Settings from_file, from_command_line;
  const YamlNode root = place.ends_with(".json") ? read_json(yaml, place) : read_document(yaml, place);
  take_document(root, place, from_file);
  for (const std::string& text : overrides) take_override(text, from_command_line);
  const std::vector<Translation> tools = read_tools(from_file, from_command_line, place, files);

  Merge merge;
  merge.add(from_command_line);
  merge.add(from_file);
  for (const Translation& tool : tools) merge.add(tool.settings());
  if (is_flat(root)) merge.add(flat_defaults(merge));
  Plan plan{};
  for (const auto& [key, merged] : merge.by_key()) {
    const std::string& from = merged.setting.place;
    if (merged.of_hidden_size != nullptr) {
      set(plan, *key, key->optional ? Value() : parse_default(*key), {.place = from, .is_of_model = true});
      plan.of_hidden_size.emplace(key->name, merged.of_hidden_size);
    } else if (key->tier == Tier::supported) {
      set(plan, *key, merged.setting.value, {from, merged.is_default});
    }
  }
  plan.notices = merge.notices();
  check_nothing_missing(plan, place);
  set_defaults(plan, place);
  if (!plan.origins.at("model.hidden_size").is_of_model) set_what_waits_for_width(plan);
  check_plan(plan, place);
  return plan;
}

std::string place_of(const Plan& plan, const std::string& key) {
  const auto origin = plan.origins.find(key);
  return origin == plan.origins.end() ? key : origin->second.place + ": " + key;
}

void fill_from_model(Plan& plan, const ModelPlan& model, const std::string& place) {
  Plan folder{};
  folder.model = model;
  for (const Key& key : keys()) {
    if (!comes_from_model(plan, key)) continue;
    const Value value = key.field.get(folder, key);
    const auto origin = plan.origins.find(std::string(key.name));
    if (origin == plan.origins.end() || origin->second.is_of_model) {
      plan.origins[std::string(key.name)] = Origin{.place = place, .is_default = true, .is_of_model = true};
      key.field.set(plan, key, value);
    } else if (const Value given = key.field.get(plan, key); given != value && given != Value()) {
      throw Error(2110, origin->second.place,
                  std::string(key.name) + " is " + to_text(given) + ", but " + place + " says " + to_text(value),
                  "leave it out: the folder of model.path decides; or train a model of other sizes without model.path");
    }
  }
  set_what_waits_for_width(plan);
  check_wrap_classes(plan);
  if (plan.data.sequence_length > model.max_position_embeddings) {
    throw Error(2104, plan.origins.at("data.sequence_length").place,
                "data.sequence_length is " + std::to_string(plan.data.sequence_length) + ", but the model of " + place +
                    " has " + std::to_string(model.max_position_embeddings) + " positions",
                "lower data.sequence_length");
  }
}

}  // namespace trireme::config
