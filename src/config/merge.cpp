#include "config/merge.h"

#include <algorithm>

#include "base/error.h"

namespace trireme::config {
namespace {

constexpr const char* kKeepOne = "keep one of them; \"auto\" in the other tool's file leaves the value to this one";

[[noreturn]] void disagree(const Key& key, const Setting& one, const Setting& other) {
  const bool is_of_tool = one.source == Source::tool_file;
  const Setting& here = is_of_tool ? other : one;
  const Setting& there = is_of_tool ? one : other;
  throw Error(2111, here.place,
              std::string(key.name) + " is " + to_text(here.value) + " here, but " + there.place + " gives " +
                  to_text(there.value),
              there.source == Source::tool_file ? kKeepOne : "keep one of them");
}

void check_not_ruled_out(const Key& key, const Setting& given, const RuledOut& ruled_out) {
  if (given.value != ruled_out.setting.value) return;
  throw Error(2111, given.place,
              std::string(key.name) + " is " + to_text(given.value) + " here, but " + ruled_out.by + " (" +
                  ruled_out.setting.place + ")",
              kKeepOne);
}

}  // namespace

void Merge::add(const Settings& source) {
  for (const auto& [key, setting] : source.by_key) {
    const auto [first, is_new] = given_.emplace(key, Merged{setting});
    Setting& held = first->second.setting;
    if (is_new || held.value == setting.value) continue;
    const bool is_of_tool = held.source == Source::tool_file || setting.source == Source::tool_file;
    if (is_of_tool || held.source == setting.source) disagree(*key, held, setting);
    if (setting.source == Source::command_line) held = setting;
  }
  soft_.insert(soft_.end(), source.soft.begin(), source.soft.end());
  ruled_out_.insert(ruled_out_.end(), source.ruled_out.begin(), source.ruled_out.end());
  notices_.insert(notices_.end(), source.notices.begin(), source.notices.end());
}

std::map<const Key*, Merged> Merge::by_key() const {
  std::map<const Key*, Merged> result = given_;
  for (const SoftSetting& soft : soft_) {
    const auto is_given = [&](std::string_view name) { return given_.contains(&key_named(name)); };
    if (std::any_of(soft.unless.begin(), soft.unless.end(), is_given)) continue;
    result.emplace(soft.key, Merged{soft.setting, soft.is_default, soft.of_hidden_size});
  }
  for (const RuledOut& each : ruled_out_) {
    const auto given = result.find(each.key);
    if (given != result.end()) check_not_ruled_out(*each.key, given->second.setting, each);
  }
  return result;
}

}  // namespace trireme::config
