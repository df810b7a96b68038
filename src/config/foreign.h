// Files of other tools: what becomes of each of their keys.
//
// A dialect is a table of the keys that such a file may have, and rules for those that mean something only together.
// Nothing is passed over in silence: each key of a file sets keys of ours, or has no effect here and says so, or is
// refused with the reason; one that the table does not know is an error that names the nearest ones.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "config/document.h"
#include "config/settings.h"

namespace trireme::config {

struct ForeignKey {
  // With dots from the root of its file: "zero_optimization.stage". A key that may be a value or a section has both
  // rows: "offload", "offload.device".
  std::string_view name;
  Fate fate = Fate::sets;
  std::string_view key = {};                 // ours; none: a rule of the dialect reads it
  Type type = Type::any;                     // of its value, where no key of ours says it; any: not checked
  std::vector<Synonym> values = {};          // its words, all that there are, in ours; an empty meaning sets nothing
  std::vector<std::string_view> off = {};    // refused: what says "off", beside null, false, 0 and empty blocks
  bool auto_is_ruled = false;                // a rule reads "auto", which else leaves the value to our keys
  bool off_alone = false;                    // refused: false and 0 do not say it, only the words of off
  std::vector<std::string_view> names = {};  // other spellings, whole
  std::string_view doc = {};  // the reason, as notices and errors print it; no_effect without: of a section that is off
};

class Translation;

struct Dialect {
  std::string_view tool;  // "DeepSpeed"
  std::vector<ForeignKey> keys;
  std::function<void(Translation&)> rules;
  bool underscore_is_comment = false;  // keys that begin with _
  std::string_view prefix = {};        // that names at the root have in the table, and may lack in the file
};

// One key that the file gives.
struct ForeignValue {
  const ForeignKey* row = nullptr;
  std::string name;  // as the table spells it
  YamlNode node;
  std::string key_place, place;  // of the key, of the value
  Source source = Source::tool_file;
};

// A file, or what a configuration has of its keys, on its way into settings; what rules work on.
class Translation {
 public:
  explicit Translation(const Dialect& dialect) : dialect_(dialect) {}

  // Takes every key of the file, then applies the rules. Errors as take_document().
  void take(const YamlNode& root, const std::string& place);

  // The same in parts: keys from several places, those of the command line first, which win over a configuration's;
  // then the rules.
  void add(const YamlNode& block, const PlaceOf& place_of, Source source);
  void finish();
  // All keys stay without effect, and a notice says why.
  void switch_off(const std::string& reason);

  // none: not given, null, or "auto", which leaves the value to our keys.
  const ForeignValue* find(std::string_view name) const;
  const ForeignValue* find_auto(std::string_view name) const;                                    // none: not "auto"
  bool knows(std::string_view name) const { return row_of(name) != nullptr || is_block(name); }  // of its table
  bool gives(std::string_view name) const { return given_.contains(name); }                      // also null and "auto"
  // The keys given in a block: "optimizer.params".
  std::vector<const ForeignValue*> in_block(std::string_view block) const;

  void set(std::string_view key, const ForeignValue& from, const YamlNode& value);
  void set(std::string_view key, const ForeignValue& from, const std::string& text);
  // What holds unless the key, or one of `unless`, is set anywhere.
  void set_softly(std::string_view key, const ForeignValue& from, const std::string& text,
                  std::vector<std::string_view> unless = {});
  // The same, of a value that follows from the model's width; formula says how.
  void set_softly(std::string_view key, const ForeignValue& from, OfHiddenSize value, const std::string& formula);
  // The tool's own default of a key that the file leaves out: holds unless the key is set anywhere.
  void set_default(std::string_view key, const ForeignValue& because_of, const std::string& text);
  void leave_open(const ForeignValue& from);    // "auto": our keys decide
  void sets_nothing(const ForeignValue& from);  // as its value says, or as others say it already
  void rule_out(std::string_view key, const ForeignValue& from, const std::string& text);  // no source may say this
  void has_no_effect(const ForeignValue& from, const std::string& reason);
  void notice(const ForeignValue& from, const std::string& text);
  [[noreturn]] void refuse(const ForeignValue& from, const std::string& reason, const std::string& remedy) const;

  bool empty() const { return given_.empty(); }
  std::string place() const { return place_of_(Mark{}); }  // of the file's beginning
  const Settings& settings() const { return settings_; }
  const std::vector<Outcome>& outcomes() const { return outcomes_; }  // in the order of the file; rules' ones last

 private:
  void take_block(const std::string& prefix, const YamlNode& block);
  void take_entry(const std::string& name, const YamlNode::Entry& entry);
  void take_value(ForeignValue value);
  void record(const ForeignValue& from, Fate fate, std::string becomes);
  [[noreturn]] void fail_unknown(const std::string& name, const std::string& place) const;
  const ForeignKey* row_of(std::string_view name) const;
  bool is_block(std::string_view name) const;

  const Dialect& dialect_;
  PlaceOf place_of_;
  Source source_ = Source::tool_file;
  std::map<std::string, ForeignValue, std::less<>> given_;
  std::map<std::string, std::string, std::less<>> setters_;  // key of ours: the foreign name that set it
  Settings settings_;
  std::vector<Outcome> outcomes_;
};

}  // namespace trireme::config
