#include "config/explain_file.h"

#include <algorithm>

#include "config/dialects.h"
#include "config/json.h"

namespace trireme::config {
namespace {

bool is_json(const std::string& text, const std::string& place) {
  if (place.ends_with(".json")) return true;
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string::npos && (text[first] == '{' || text.compare(first, 2, "//") == 0);
}

// None: a configuration of ours. Where as many keys are known, JSON is DeepSpeed's and YAML is ours.
const Dialect* dialect_of(const YamlNode& root, bool from_json) {
  const auto count = [&](auto&& knows) {
    return std::count_if(root.entries.begin(), root.entries.end(),
                         [&](const YamlNode::Entry& entry) { return knows(entry.key); });
  };
  const Dialect* best = nullptr;
  auto most = count([](const std::string& key) { return find_key(key).key != nullptr || is_block(key); });
  for (const Dialect* dialect : {&deepspeed_dialect(), &fsdp_dialect(), &accelerate_dialect()}) {
    const Translation table(*dialect);
    const auto known = count([&](const std::string& key) { return table.knows(key); });
    const bool wins_a_tie = from_json && dialect == &deepspeed_dialect() && known > 0;
    if (known < most || (known == most && !wins_a_tie)) continue;
    most = known;
    best = dialect;
  }
  return best;
}

std::string table(const std::vector<Outcome>& outcomes) {
  std::size_t widths[3] = {0, 0, 0};
  std::vector<std::vector<std::string>> rows;
  for (const Outcome& each : outcomes) {
    rows.push_back({each.place, each.name + " = " + each.value, std::string(to_string(each.fate)), each.becomes});
    for (int i = 0; i < 3; ++i) widths[i] = std::max(widths[i], rows.back()[static_cast<std::size_t>(i)].size());
  }
  std::string text;
  for (std::vector<std::string>& row : rows) {
    for (std::size_t i = 0; i < 3; ++i) {
      row[i].resize(widths[i] + 2, ' ');
      text += row[i];
    }
    text += row[3] + "\n";
  }
  return text;
}

}  // namespace

std::string explain_file(const std::string& text, const std::string& place) {
  const bool from_json = is_json(text, place);
  const YamlNode root = from_json ? read_json(text, place) : read_document(text, place);
  std::vector<Outcome> outcomes;
  const auto add = [&](const std::vector<Outcome>& more) { outcomes.insert(outcomes.end(), more.begin(), more.end()); };
  if (const Dialect* dialect = dialect_of(root, from_json)) {
    Translation translation(*dialect);
    translation.take(root, place);
    add(translation.outcomes());
    return place + " is read as a file of " + std::string(dialect->tool) + "\n" + table(outcomes);
  }
  Settings settings;
  take_document(root, place, settings);
  add(settings.outcomes);
  for (const Translation& tool : read_tools(settings, {}, place, {})) add(tool.outcomes());
  return place + " is read as a configuration\n" + table(outcomes);
}

}  // namespace trireme::config
