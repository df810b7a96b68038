#include "config/foreign.h"

#include <algorithm>

#include "base/error.h"
#include "config/suggest.h"
#include "config/value.h"

namespace trireme::config {
namespace {

bool says_off(const ForeignKey& row, const YamlNode& node) {
  if (row.off_alone && node.kind == YamlNode::Kind::scalar) {
    return std::find(row.off.begin(), row.off.end(), folded(node.text)) != row.off.end();
  }
  if (node.kind == YamlNode::Kind::null) return true;
  if (node.kind == YamlNode::Kind::list) return node.items.empty();
  if (node.kind == YamlNode::Kind::block) {
    // A section of another tool is off as long as it does not switch itself on.
    const auto is_switch = [](const YamlNode::Entry& entry) { return entry.key == "enabled"; };
    const auto enabled = std::find_if(node.entries.begin(), node.entries.end(), is_switch);
    return node.entries.empty() || (enabled != node.entries.end() && parse_bool(enabled->value.text) == false);
  }
  const std::string word = folded(node.text);
  return parse_bool(node.text) == false || word == "0" || word == "none" ||
         std::find(row.off.begin(), row.off.end(), word) != row.off.end();
}

bool is_auto(const YamlNode& node) {
  return node.kind == YamlNode::Kind::scalar && folded(node.text) == "auto";
}

void check_type(const ForeignKey& row, const YamlNode& node, const std::string& place) {
  if (row.type == Type::any || node.kind == YamlNode::Kind::null) return;
  Key as_key{.name = row.name, .type = row.type, .optional = true};
  if (row.fate == Fate::no_effect) as_key.range.low = 0;  // sizes and counts
  read_value(as_key, node, place);
}

// "true" in quotes is as good as true to the tools that write such files.
bool takes_boolean(const ForeignKey& row) {
  return row.type == Type::boolean || (!row.key.empty() && key_named(row.key).type == Type::boolean);
}

std::string_view parent_of(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : name.substr(0, dot);
}

}  // namespace

std::string_view to_string(Fate fate) {
  switch (fate) {
    case Fate::sets: return "supported";
    case Fate::mapped: return "mapped";
    case Fate::no_effect: return "no effect";
    case Fate::refused: return "refused";
  }
  return {};
}

void Translation::take(const YamlNode& root, const std::string& place) {
  add(
      root, [place](Mark mark) { return at(place, mark); }, Source::tool_file);
  finish();
}

void Translation::add(const YamlNode& block, const PlaceOf& place_of, Source source) {
  place_of_ = place_of;
  source_ = source;
  take_block("", block);
}

void Translation::finish() {
  if (dialect_.rules) dialect_.rules(*this);
}

void Translation::switch_off(const std::string& reason) {
  settings_ = {};
  for (Outcome& outcome : outcomes_) {
    outcome.fate = Fate::no_effect;
    outcome.becomes = reason;
  }
  if (outcomes_.empty()) return;
  settings_.notices.push_back(outcomes_.front().place + ": keys of " + std::string(dialect_.tool) +
                              " have no effect: " + reason);
}

const ForeignValue* Translation::find(std::string_view name) const {
  const auto found = given_.find(name);
  if (found == given_.end() || found->second.node.kind == YamlNode::Kind::null || is_auto(found->second.node)) {
    return nullptr;
  }
  return &found->second;
}

const ForeignValue* Translation::find_auto(std::string_view name) const {
  const auto found = given_.find(name);
  return found == given_.end() || !is_auto(found->second.node) ? nullptr : &found->second;
}

std::vector<const ForeignValue*> Translation::in_block(std::string_view block) const {
  std::vector<const ForeignValue*> result;
  for (const auto& [name, value] : given_) {
    if (parent_of(name) == block && find(name) != nullptr) result.push_back(&value);
  }
  return result;
}

void Translation::set(std::string_view key, const ForeignValue& from, const YamlNode& value) {
  const Key& row = key_named(key);
  Setting setting{read_value(row, value, from.place), from.key_place, from.source};
  const std::string becomes = std::string(key) + " = " + to_text(setting.value);
  const auto [first, is_new] = settings_.by_key.emplace(&row, setting);
  if (!is_new && first->second.value != setting.value) {
    throw Error(2103, from.key_place,
                from.name + " gives " + std::string(key) + " as " + to_text(setting.value) + ", but " +
                    setters_.find(key)->second + " (" + first->second.place + ") gives " + to_text(first->second.value),
                "keep one of them");
  }
  setters_.emplace(key, from.name);
  record(from, from.row->fate, becomes);
}

void Translation::set(std::string_view key, const ForeignValue& from, const std::string& text) {
  set(key, from, YamlNode{.kind = YamlNode::Kind::scalar, .mark = from.node.mark, .text = text});
}

void Translation::set_softly(std::string_view key, const ForeignValue& from, const std::string& text,
                             std::vector<std::string_view> unless) {
  const Key& row = key_named(key);
  const YamlNode node{.kind = YamlNode::Kind::scalar, .mark = from.node.mark, .text = text};
  const Setting setting{read_value(row, node, from.place), from.key_place, from.source};
  settings_.soft.push_back({&row, setting, std::move(unless)});
  record(from, from.row->fate, std::string(key) + " = " + to_text(setting.value) + ", unless set elsewhere");
}

void Translation::set_softly(std::string_view key, const ForeignValue& from, OfHiddenSize value,
                             const std::string& formula) {
  const Setting open{.place = from.key_place, .source = from.source};
  settings_.soft.push_back({.key = &key_named(key), .setting = open, .of_hidden_size = value});
  record(from, from.row->fate, std::string(key) + " = " + formula + ", unless set elsewhere");
}

void Translation::set_default(std::string_view key, const ForeignValue& because_of, const std::string& text) {
  const Key& row = key_named(key);
  const YamlNode node{.kind = YamlNode::Kind::scalar, .text = text};
  const std::string place = "default of " + std::string(dialect_.tool) + ", by " + because_of.key_place;
  settings_.soft.push_back(
      {.key = &row, .setting = {.value = read_value(row, node, place), .place = place}, .is_default = true});
}

void Translation::leave_open(const ForeignValue& from) {
  record(from, from.row->fate, "auto: left to our keys and their defaults");
}

void Translation::sets_nothing(const ForeignValue& from) {
  record(from, from.row->fate, "sets nothing");
}

void Translation::rule_out(std::string_view key, const ForeignValue& from, const std::string& text) {
  const Key& row = key_named(key);
  const YamlNode node{.kind = YamlNode::Kind::scalar, .mark = from.node.mark, .text = text};
  settings_.ruled_out.push_back({.key = &row,
                                 .setting = {read_value(row, node, from.place), from.key_place, from.source},
                                 .by = from.name + " is " + from.node.text});
  record(from, from.row->fate, std::string(key) + " is not " + text);
}

void Translation::has_no_effect(const ForeignValue& from, const std::string& reason) {
  record(from, Fate::no_effect, reason);
  notice(from, "has no effect: " + reason);
}

void Translation::notice(const ForeignValue& from, const std::string& text) {
  settings_.notices.push_back(from.key_place + ": " + from.name + " (" + std::string(dialect_.tool) + ") " + text);
}

void Translation::refuse(const ForeignValue& from, const std::string& reason, const std::string& remedy) const {
  throw Error(2190, from.place, from.name + " is " + shown_value(from.node) + ": " + reason, remedy);
}

void Translation::record(const ForeignValue& from, Fate fate, std::string becomes) {
  outcomes_.push_back({from.name, shown_value(from.node), from.key_place, fate, std::move(becomes)});
}

const ForeignKey* Translation::row_of(std::string_view name) const {
  const auto is_it = [&](std::string_view known) {
    return known == name || (known.starts_with(dialect_.prefix) && known.substr(dialect_.prefix.size()) == name);
  };
  const auto found = std::find_if(dialect_.keys.begin(), dialect_.keys.end(), [&](const ForeignKey& row) {
    return is_it(row.name) || std::any_of(row.names.begin(), row.names.end(), is_it);
  });
  return found == dialect_.keys.end() ? nullptr : &*found;
}

bool Translation::is_block(std::string_view name) const {
  const std::string prefix = std::string(name) + ".";
  const auto is_below = [&](std::string_view known) {
    return known.starts_with(prefix) ||
           (known.starts_with(dialect_.prefix) && known.substr(dialect_.prefix.size()).starts_with(prefix));
  };
  return std::any_of(dialect_.keys.begin(), dialect_.keys.end(), [&](const ForeignKey& row) {
    return is_below(row.name) || std::any_of(row.names.begin(), row.names.end(), is_below);
  });
}

void Translation::take_block(const std::string& prefix, const YamlNode& block) {
  for (const YamlNode::Entry& entry : block.entries) take_entry(prefix + entry.key, entry);
}

void Translation::take_entry(const std::string& name, const YamlNode::Entry& entry) {
  if (dialect_.underscore_is_comment && entry.key.starts_with('_')) return;
  const std::string key_place = place_of_(entry.mark);
  const ForeignKey* row = row_of(name);
  const bool is_section = row != nullptr && entry.value.kind == YamlNode::Kind::block && is_block(row->name);
  if (row != nullptr && !is_section) {
    ForeignValue value{.row = row,
                       .name = std::string(row->name),
                       .node = entry.value,
                       .key_place = key_place,
                       .place = place_of_(entry.value.mark),
                       .source = source_};
    if (takes_boolean(*row)) value.node.quoted = false;
    take_value(std::move(value));
  } else if (is_block(name)) {
    if (entry.value.kind == YamlNode::Kind::null) return;
    if (entry.value.kind != YamlNode::Kind::block) {
      throw Error(2102, place_of_(entry.value.mark), name + " is " + shown_value(entry.value),
                  "it is a section: write \"" + std::string(leaf_of(name)) + "\": { ... }");
    }
    take_block(name + ".", entry.value);
  } else {
    fail_unknown(name, key_place);
  }
}

void Translation::take_value(ForeignValue value) {
  const ForeignKey& row = *value.row;
  const auto [first, is_new] = given_.emplace(value.name, value);
  if (!is_new) {
    if (first->second.source == Source::command_line && value.source == Source::configuration) return;
    throw Error(2103, value.key_place, value.name + " is given twice, first at " + first->second.key_place,
                "two names of one key: keep one of them");
  }
  if (is_auto(value.node)) return row.auto_is_ruled ? void() : leave_open(value);
  if (row.fate == Fate::no_effect) {
    check_type(row, value.node, value.place);
    if (row.doc.empty()) return record(value, Fate::no_effect, "belongs to a section that is off");
    return has_no_effect(value, std::string(row.doc));
  }
  if (row.fate == Fate::refused) {
    if (!says_off(row, value.node)) {
      refuse(value, std::string(row.doc), "remove " + std::string(leaf_of(row.name)) + " from the file");
    }
    record(value, Fate::refused, "off");
    return notice(value, "changes nothing as " + shown_value(value.node) + ": " + std::string(row.doc));
  }
  check_type(row, value.node, value.place);
  if (row.fate == Fate::mapped) {
    notice(value, (row.key.empty() ? "" : "is read as " + std::string(row.key) + ": ") + std::string(row.doc));
    if (row.key.empty()) record(value, row.fate, std::string(row.doc));
  }
  if (value.node.kind == YamlNode::Kind::null) return sets_nothing(value);
  if (row.values.empty()) return row.key.empty() ? void() : set(row.key, value, value.node);
  const std::string word = folded(value.node.text);
  std::string allowed;
  for (const Synonym& synonym : row.values) {
    if (value.node.kind == YamlNode::Kind::scalar && word == synonym.word) {
      if (row.key.empty()) return;
      if (synonym.meaning.empty()) return sets_nothing(value);
      return set(row.key, value, std::string(synonym.meaning));
    }
    allowed += (allowed.empty() ? "" : ", ") + std::string(synonym.word);
  }
  throw Error(2102, value.place, value.name + " is " + shown_value(value.node), "it takes " + allowed);
}

void Translation::fail_unknown(const std::string& name, const std::string& place) const {
  std::vector<std::string> known;
  const auto add = [&](std::string_view spelling) {
    known.emplace_back(spelling);
    const bool may_be_shorter = !dialect_.prefix.empty() && spelling.starts_with(dialect_.prefix);
    if (may_be_shorter) known.emplace_back(spelling.substr(dialect_.prefix.size()));
  };
  for (const ForeignKey& row : dialect_.keys) {
    add(row.name);
    for (const std::string_view spelling : row.names) add(spelling);
  }
  std::vector<std::string> near = nearest(name, known);
  const auto add_same_leaf = [&](std::string_view leaf) {
    for (const std::string& candidate : known) {
      if (leaf_of(candidate) == leaf && std::find(near.begin(), near.end(), candidate) == near.end()) {
        near.push_back(candidate);
      }
    }
  };
  if (near.empty()) add_same_leaf(leaf_of(name));
  std::string remedy;
  for (const std::string& candidate : near) remedy += (remedy.empty() ? "did you mean " : " or ") + candidate;
  throw Error(2101, place, "unknown key " + shown(name) + " of " + std::string(dialect_.tool),
              remedy.empty() ? "remove it, or put _ before its name to keep it as a comment" : remedy + "?");
}

}  // namespace trireme::config
