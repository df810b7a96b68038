// YAML text as a tree with places, read under limits, so that no input can crash, hang or fill the memory.
//
// The subset: one document whose root is a block of keys; text keys; no anchors, aliases, merge keys or tags; UTF-8
// without control characters; no tabs in indentation. What is outside of it is refused in words (TR2108); what is not
// YAML at all is TR2107; a key twice in one block is TR2103.
#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::config {

inline constexpr std::size_t kMaxDocumentBytes = 1 << 20;
inline constexpr int kMaxDepth = 16;

struct Mark {
  int line = 1, column = 1;  // from 1; columns count characters
};

struct YamlNode {
  enum class Kind { null, scalar, list, block };
  Kind kind = Kind::null;
  Mark mark;
  std::string text;     // of a scalar, as written, without quotes
  bool quoted = false;  // a scalar in quotes or a block scalar: text, whatever it looks like
  std::vector<YamlNode> items;
  struct Entry;
  std::vector<Entry> entries;  // of a block, in the order of the text
};

struct YamlNode::Entry {
  std::string key;
  Mark mark;  // of the key
  YamlNode value;
};

// How a mark is named in errors: "run.yaml:14:5", or the argument of the command line whatever the mark.
using PlaceOf = std::function<std::string(Mark)>;

// A text without content gives an empty block. place names the text in errors: "PLACE:LINE:COLUMN".
YamlNode read_document(std::string_view text, const std::string& place);

// The value of a key=value override: text that starts with one of " ' [ { is read as YAML, all other is one plain
// scalar to its last character; empty, ~ and null are null.
YamlNode read_override_value(std::string_view text, const PlaceOf& place_of);

std::string at(const std::string& place, Mark mark);

// For messages: in quotes where it is needed, control characters escaped, shortened.
std::string shown(std::string_view text);
std::string shown_value(const YamlNode& node);  // a list or a block by its kind

}  // namespace trireme::config
