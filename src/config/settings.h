// What one source (the file, or the command line) says about which key.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "config/document.h"
#include "config/schema.h"

namespace trireme::config {

// tool_file: a file of another tool, which neither of the others may contradict.
enum class Source : std::uint8_t { configuration, command_line, tool_file };

struct Setting {
  Value value;        // monostate: unset on purpose, or "off" of a key of later work
  std::string place;  // of the key
  Source source = Source::configuration;
};

// What holds where no source sets its key, nor one of the others.
struct SoftSetting {
  const Key* key;
  Setting setting;  // its value is open where of_hidden_size gives it
  std::vector<std::string_view> unless = {};
  bool is_default = false;  // of the program, not of the user
  OfHiddenSize of_hidden_size = nullptr;
};

// A value that a source rules out without giving another: "fp16.enabled": false.
struct RuledOut {
  const Key* key;
  Setting setting;
  std::string by;  // "fp16.enabled is false"
};

// A key that another tool's table reads (Tier::foreign).
struct ForeignPart {
  const Key* key;
  YamlNode::Entry entry;
  PlaceOf place_of;
  Source source;
};

// sets: a key of ours. mapped: the same, with a notice, for an old name or another meaning. no_effect: a notice.
// refused: an error, unless its value says "off": then a notice.
enum class Fate : std::uint8_t { sets, mapped, no_effect, refused };
std::string_view to_string(Fate fate);

// What became of one key of a file.
struct Outcome {
  std::string name, value, place;
  Fate fate = Fate::sets;
  std::string becomes;  // "distributed.strategy = zero2", or the reason
};

struct Settings {
  std::map<const Key*, Setting> by_key;
  std::vector<SoftSetting> soft;  // the first of one key holds
  std::vector<RuledOut> ruled_out;
  std::vector<ForeignPart> foreign;
  std::vector<std::string> notices;
  std::vector<Outcome> outcomes;  // of the keys that no other tool's table reads
};

// Takes every key of a document. Errors: TR2101 unknown key, TR2103 a key twice (by different names with different
// values), and those of read_value().
void take_document(const YamlNode& root, const std::string& place, Settings& settings);

// Takes one "key=value" of the command line; also TR2109 where it is not of this form.
void take_override(const std::string& text, Settings& settings);

}  // namespace trireme::config
