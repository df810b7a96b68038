#include "config/settings.h"

#include "base/error.h"
#include "config/suggest.h"
#include "config/value.h"

namespace trireme::config {
namespace {

std::string written_name(const Match& match) {
  return match.alias == nullptr ? std::string(match.key->name) : full_name(*match.key, *match.alias);
}

// The value in the words of the key: a name from another tool may take other values, of which some set nothing.
struct Translated {
  YamlNode node;
  bool sets_nothing = false;
};

Translated translate(const Match& match, const YamlNode& value, const std::string& place) {
  if (match.alias == nullptr || match.alias->values.empty()) return {value};
  std::string word = folded(value.text);
  if (const auto truth = parse_bool(value.text)) word = *truth ? "true" : "false";
  std::string allowed;
  for (const Synonym& synonym : match.alias->values) {
    if (value.kind == YamlNode::Kind::scalar && word == synonym.word) {
      YamlNode node = value;
      node.text = std::string(synonym.meaning);
      return {node, synonym.meaning.empty()};
    }
    allowed += (allowed.empty() ? "" : ", ") + std::string(synonym.word);
  }
  const std::string what = value.kind == YamlNode::Kind::scalar ? shown(value.text) : "not a single word";
  throw Error(2102, place, written_name(match) + " is " + what,
              "by this name it takes " + allowed + "; our own key is " + std::string(match.key->name));
}

class Taker {
 public:
  Taker(PlaceOf place_of, Source source, Settings& settings)
      : place_of_(std::move(place_of)), source_(source), settings_(settings) {}

  void take(const std::string& name, Mark mark, const YamlNode& value) {
    const Match match = find_key(name);
    const bool is_nested = match.key != nullptr && match.key->tier != Tier::foreign &&
                           value.kind == YamlNode::Kind::block && is_block(written_name(match));
    if (is_nested) {
      take_block(written_name(match), mark, value);
    } else if (match.key != nullptr) {
      take_key(match, mark, name, value);
    } else if (is_block(name)) {
      take_block(name, mark, value);
    } else {
      const bool looks_like_block = value.kind == YamlNode::Kind::block && name.find('.') == std::string::npos;
      throw Error(2101, place_of_(mark),
                  std::string(looks_like_block ? "unknown block " : "unknown key ") + shown(name),
                  looks_like_block ? suggest_block(name) : suggest_key(name));
    }
  }

 private:
  void take_block(const std::string& name, Mark mark, const YamlNode& value) {
    if (value.kind == YamlNode::Kind::null) return;
    if (value.kind != YamlNode::Kind::block) {
      throw Error(2102, place_of_(mark), name + " is a block of keys, not a value",
                  "indent its keys below it, or write " + name + ".KEY");
    }
    for (const YamlNode::Entry& entry : value.entries) take(name + "." + entry.key, entry.mark, entry.value);
  }

  void take_key(const Match& match, Mark mark, const std::string& name, const YamlNode& value) {
    const Key& key = *match.key;
    const std::string key_place = place_of_(mark);
    if (key.tier == Tier::foreign) {
      settings_.foreign.push_back({&key, {std::string(leaf_of(name)), mark, value}, place_of_, source_});
      return;
    }
    const std::string value_place = value.kind == YamlNode::Kind::null ? key_place : place_of_(value.mark);
    const Translated translated = translate(match, value, value_place);
    if (match.alias != nullptr || match.is_lifted) {
      const std::string tool = match.alias == nullptr ? "" : " (" + std::string(match.alias->tool) + ")";
      settings_.notices.push_back(key_place + ": " + name + tool + " is read as " + std::string(key.name));
    }
    const Fate fate = key.tier == Tier::no_effect      ? Fate::no_effect
                      : key.tier == Tier::not_yet      ? Fate::refused
                      : match.alias || match.is_lifted ? Fate::mapped
                                                       : Fate::sets;
    Outcome outcome{name, shown_value(value), key_place, fate, "sets nothing"};
    if (translated.sets_nothing) return settings_.outcomes.push_back(std::move(outcome));
    Setting setting{read_value(key, translated.node, value_place), key_place, source_};
    if (key.tier == Tier::no_effect) {
      settings_.notices.push_back(key_place + ": " + name + " has no effect: " + std::string(key.doc));
    }
    outcome.becomes = key.tier == Tier::no_effect ? std::string(key.doc)
                      : key.tier == Tier::not_yet ? "off"
                                                  : std::string(key.name) + " = " + to_text(setting.value);
    settings_.outcomes.push_back(std::move(outcome));
    add(key, name, setting);
  }

  // Two names of one key may say the same.
  void add(const Key& key, const std::string& name, const Setting& setting) {
    const auto [first, is_new] = settings_.by_key.emplace(&key, setting);
    const auto [first_name, is_first] = names_.emplace(&key, name);
    if (is_new || (first_name->second != name && first->second.value == setting.value)) return;
    throw Error(2103, setting.place, std::string(key.name) + " is given twice, first at " + first->second.place,
                first_name->second == name ? "keep one of them"
                                           : name + " and " + first_name->second + " are names of it: keep one");
  }

  PlaceOf place_of_;
  Source source_;
  Settings& settings_;
  std::map<const Key*, std::string> names_;
};

}  // namespace

void take_document(const YamlNode& root, const std::string& place, Settings& settings) {
  Taker taker([place](Mark mark) { return at(place, mark); }, Source::configuration, settings);
  for (const YamlNode::Entry& entry : root.entries) taker.take(entry.key, entry.mark, entry.value);
}

void take_override(const std::string& text, Settings& settings) {
  const std::string place = "command line: " + shown(text);
  const std::size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  if (equals == std::string::npos) {
    const bool known = find_key(name).key != nullptr;
    throw Error(
        2109, place, "this is not of the form key=value",
        known ? "write " + name + "=VALUE" : "after the configuration file come settings like training.max_steps=100");
  }
  if (name.empty()) throw Error(2109, place, "there is no key before the =", "write training.max_steps=100");
  const PlaceOf place_of = [place](Mark) { return place; };
  Taker(place_of, Source::command_line, settings)
      .take(name, Mark{}, read_override_value(text.substr(equals + 1), place_of));
}

}  // namespace trireme::config
