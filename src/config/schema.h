// The schema: one row for each key of a configuration. Reading, checking, writing, the documentation and the digest of
// a plan all follow this table; a new key is a row here and a field in plan.h.
#pragma once
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "config/plan.h"

namespace trireme::config {

using Words = std::vector<std::string>;

// A value of a key; monostate: unset. Enums, text and paths are strings; enums in the schema's spelling.
using Value = std::variant<std::monostate, bool, std::int64_t, double, std::string, Words>;

// choices: several of the choices, as a list or as one word. texts: any words, alike, in their order. any: a text, list
// or block, which only keys of later work take.
enum class Type : std::uint8_t { boolean, integer, number, text, texts, path, choice, choices, any };

// not_yet: refused unless it says "off". no_effect: read, with a notice that nothing follows from it. foreign: read by
// the table of another tool (foreign.h).
enum class Tier : std::uint8_t { supported, not_yet, no_effect, foreign };

struct Range {
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
  bool above_low = false, below_high = false;  // the bound itself is outside
};

// Another spelling of a value: "bfloat16" for "bf16". An empty meaning sets nothing, or adds nothing to a list.
struct Synonym {
  std::string_view word, meaning;
};

// A name that users bring from another tool.
struct Alias {
  std::string_view name;  // with dots: the whole key, or one in a block of that name; without: in the block of its key
  std::string_view tool;
  std::vector<Synonym> values = {};  // where the name takes other values than its key: all that are accepted
};

struct Key;

// How a row reaches its field of the plan.
struct Field {
  void (*set)(Plan&, const Key&, const Value&) = nullptr;
  Value (*get)(const Plan&, const Key&) = nullptr;
};

struct Key {
  std::string_view name;  // "training.learning_rate"
  Type type = Type::text;
  Tier tier = Tier::supported;
  // What holds where the key is not given: one of these three.
  std::string_view fallback = {};  // as text
  bool required = false;
  bool optional = false;  // stays unset
  // ... or a value that follows from others, with the rule in words.
  Value (*derive)(const Plan&) = nullptr;
  std::string_view rule = {};

  Range range = {};
  std::vector<std::string_view> choices = {};          // of an enum, in the order of the C++ enum
  std::vector<std::string_view> choices_not_yet = {};  // known, refused with "not yet"
  std::vector<Synonym> value_synonyms = {};
  std::vector<Synonym> refused = {};         // words that are no choice, each with the reason
  std::vector<std::string_view> inert = {};  // of a not_yet key: values that say "off", beside null
  std::vector<Alias> aliases = {};
  bool (*decides)(const Plan&) = nullptr;  // whether the value decides the numbers of the run; none: never
  Field field = {};                        // of supported keys
  std::string_view doc = {};
};

// All rows: supported ones in the order of the documentation, then not_yet, no_effect and foreign.
const std::vector<Key>& keys();

std::string_view block_of(std::string_view name);  // "training"; "" for a key at the top
std::string_view leaf_of(std::string_view name);   // "learning_rate"

// The whole names under which an alias is accepted.
std::string full_name(const Key& key, const Alias& alias);

struct Match {
  const Key* key = nullptr;
  const Alias* alias = nullptr;  // none: the key's own name
  bool is_lifted = false;        // by the last part of its name, at the top of the file
};

// By whole name, or a name of training, distributed, checkpoint and monitor without its block, where only one key has
// it. {} where there is no such key.
Match find_key(std::string_view name);
const Key& key_named(std::string_view name);  // a row that must exist

// "model", "data", ... in the order of the documentation.
std::vector<std::string_view> block_names();
// Whether there are keys below it: of "model", and of keys that are a block too, "distributed.offload_optimizer".
bool is_block(std::string_view name);

// The value as YAML text that reads back to the same value; "null" for unset.
std::string to_text(const Value& value);

// The default as a person reads it: "3e-4", "required", "unset", "num_heads".
std::string default_text(const Key& key);

// "bool", "integer from 1", "one of constant, linear, cosine".
std::string type_text(const Key& key);

}  // namespace trireme::config
