#include "config/dialects.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "config/json.h"
#include "config/value.h"

namespace trireme::config {
namespace {

// How a configuration names a tool's file: by its path, with a switch that may turn it off.
struct FileKey {
  std::string_view block, path, use;
  std::filesystem::path ToolFiles::*file;
};

constexpr FileKey kFileKeys[] = {
    {"distributed", "deepspeed_config", "use_deepspeed", &ToolFiles::deepspeed},
    {"training", "deepspeed", "", &ToolFiles::deepspeed},
    {"distributed", "fsdp_config", "use_fsdp", &ToolFiles::fsdp},
};

YamlNode* find_block(YamlNode& root, std::string_view name) {
  for (YamlNode::Entry& entry : root.entries) {
    if (entry.key == name && entry.value.kind == YamlNode::Kind::block) return &entry.value;
  }
  return nullptr;
}

const YamlNode* find_value(const YamlNode& block, std::string_view key) {
  for (const YamlNode::Entry& entry : block.entries) {
    if (entry.key == key && entry.value.kind != YamlNode::Kind::null) return &entry.value;
  }
  return nullptr;
}

// The path that the entry names, from the folder of the configuration; the entry is gone then.
std::filesystem::path take_path(YamlNode& block, const FileKey& key, const std::string& place) {
  const auto entry = std::find_if(block.entries.begin(), block.entries.end(),
                                  [&](const YamlNode::Entry& each) { return each.key == key.path; });
  if (entry == block.entries.end() || entry->value.kind != YamlNode::Kind::scalar || entry->value.text.empty()) {
    return {};
  }
  const std::filesystem::path path = std::filesystem::path(place).parent_path() / entry->value.text;
  block.entries.erase(entry);
  return path;
}

Translation read_tool_file(const std::filesystem::path& file, const Dialect& dialect,
                           YamlNode (*read)(std::string_view, const std::string&)) {
  Translation translation(dialect);
  translation.take(read(read_configuration(file), file.string()), file.string());
  return translation;
}

}  // namespace

ToolFiles take_tool_files(YamlNode& root, const std::string& place, ToolFiles given) {
  for (const FileKey& key : kFileKeys) {
    YamlNode* block = find_block(root, key.block);
    if (block == nullptr) continue;
    const YamlNode* use = key.use.empty() ? nullptr : find_value(*block, key.use);
    const bool is_off = use != nullptr && parse_bool(use->text) == false;
    const YamlNode* named = find_value(*block, key.path);
    const Mark mark = named == nullptr ? Mark{} : named->mark;
    const std::filesystem::path path = take_path(*block, key, place);
    if (path.empty() || is_off) continue;
    std::filesystem::path& file = given.*key.file;
    if (!file.empty() && file.lexically_normal() != path.lexically_normal()) {
      throw Error(2111, at(place, mark), "names " + path.string() + ", but " + file.string() + " is given too",
                  "name the file in one place");
    }
    file = path;
  }
  return given;
}

std::vector<Translation> read_tool_files(const ToolFiles& files) {
  std::vector<Translation> result;
  if (!files.accelerate.empty()) {
    result.push_back(read_tool_file(files.accelerate, accelerate_dialect(), read_document));
  }
  if (!files.deepspeed.empty()) result.push_back(read_tool_file(files.deepspeed, deepspeed_dialect(), read_json));
  if (!files.fsdp.empty()) result.push_back(read_tool_file(files.fsdp, fsdp_dialect(), read_json));
  return result;
}

void check_agreement(const Settings& tool, std::initializer_list<const Settings*> others) {
  for (const auto& [key, setting] : tool.by_key) {
    for (const Settings* other : others) {
      const auto found = other->by_key.find(key);
      if (found == other->by_key.end() || found->second.value == setting.value) continue;
      throw Error(2111, found->second.place,
                  std::string(key->name) + " is " + to_text(found->second.value) + " here, but " + setting.place +
                      " gives " + to_text(setting.value),
                  "keep one of them; \"auto\" in the other tool's file leaves the value to this one");
    }
  }
}

}  // namespace trireme::config
