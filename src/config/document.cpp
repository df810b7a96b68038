#include "config/document.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <map>
#include <sstream>

#include "base/error.h"
#include "config/text_guard.h"

namespace trireme::config {
namespace {

Mark from(const YAML::Mark& mark) {
  return {mark.line + 1, mark.column + 1};
}

bool is_null_word(std::string_view text) {
  return text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL";
}

// Builds the tree from the parser's events; it has no recursion of its own, and the depth limit ends the parser's.
class Builder : public YAML::EventHandler {
 public:
  explicit Builder(PlaceOf place_of) : place_of_(std::move(place_of)) {}

  bool empty() const { return !has_root_; }
  YamlNode take_root() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (has_root_) refuse(from(mark), "a second document", "keep one document in the file, without --- between parts");
  }
  void OnDocumentEnd() override {}
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    refuse(from(mark), "an alias (*name)", "write the value out");
  }
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    check_plain(from(mark), "", anchor);
    add(YamlNode{.mark = from(mark)});
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    check_plain(from(mark), tag, anchor);
    const bool quoted = tag == "!";
    const auto kind = !quoted && is_null_word(value) ? YamlNode::Kind::null : YamlNode::Kind::scalar;
    add(YamlNode{.kind = kind, .mark = from(mark), .text = value, .quoted = quoted});
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(from(mark), tag, anchor, YamlNode::Kind::list);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(from(mark), tag, anchor, YamlNode::Kind::block);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Level {
    YamlNode node;
    bool has_key = false;  // a key was read and waits for its value
    std::string key;
    Mark key_mark;
    std::map<std::string, Mark> seen;
  };

  [[noreturn]] void refuse(Mark mark, const std::string& what, const std::string& remedy) const {
    throw Error(2108, place_of_(mark), what + " is not accepted in a configuration", remedy);
  }

  void check_plain(Mark mark, const std::string& tag, YAML::anchor_t anchor) const {
    if (anchor != 0) refuse(mark, "an anchor (&name)", "write the value out where it is needed");
    if (!tag.empty() && tag != "?" && tag != "!") {
      refuse(mark, "the tag " + shown(tag), "leave the tag away: the type follows from the key");
    }
  }

  void open(Mark mark, const std::string& tag, YAML::anchor_t anchor, YamlNode::Kind kind) {
    check_plain(mark, tag, anchor);
    if (!levels_.empty() && wants_key())
      refuse(mark, "a list or block as a key", "keys are plain text; is a bracket left open?");
    if (levels_.size() >= kMaxDepth) {
      refuse(mark, "nesting deeper than " + std::to_string(kMaxDepth) + " levels", "no key needs so many levels");
    }
    levels_.push_back({.node = YamlNode{.kind = kind, .mark = mark}});
  }

  void close() {
    YamlNode node = std::move(levels_.back().node);
    levels_.pop_back();
    add(std::move(node));
  }

  bool wants_key() const { return levels_.back().node.kind == YamlNode::Kind::block && !levels_.back().has_key; }

  void add(YamlNode node) {
    if (levels_.empty()) {
      root_ = std::move(node);
      has_root_ = true;
    } else if (wants_key()) {
      take_key(node);
    } else if (Level& level = levels_.back(); level.node.kind == YamlNode::Kind::list) {
      level.node.items.push_back(std::move(node));
    } else {
      level.has_key = false;
      level.node.entries.push_back({std::move(level.key), level.key_mark, std::move(node)});
    }
  }

  void take_key(YamlNode& key) {
    if (key.kind == YamlNode::Kind::null) refuse(key.mark, "an empty key", "write KEY: VALUE");
    if (!key.quoted && key.text == "<<") refuse(key.mark, "a merge key (<<)", "write the keys out");
    Level& level = levels_.back();
    const auto [first, is_new] = level.seen.emplace(key.text, key.mark);
    if (!is_new) {
      throw Error(2103, place_of_(key.mark),
                  "the key " + shown(key.text) + " appears twice in the same block, first in line " +
                      std::to_string(first->second.line),
                  "keep one of them");
    }
    level.has_key = true;
    level.key = std::move(key.text);
    level.key_mark = key.mark;
  }

  PlaceOf place_of_;
  std::vector<Level> levels_;
  YamlNode root_;
  bool has_root_ = false;
};

YamlNode parse(std::string_view text, const PlaceOf& place_of) {
  check_text(text, place_of);
  Builder builder(place_of);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& e) {
    throw Error(2107, place_of(e.mark.is_null() ? Mark{} : from(e.mark)), "not valid YAML here: " + e.msg,
                "keys are written KEY: VALUE, blocks are indented by spaces; put text with : # or [ in quotes");
  }
  if (builder.empty()) return YamlNode{.kind = YamlNode::Kind::null};
  return builder.take_root();
}

}  // namespace

YamlNode read_document(std::string_view text, const std::string& place) {
  YamlNode root = parse(text, [&](Mark mark) { return at(place, mark); });
  if (root.kind == YamlNode::Kind::null) root.kind = YamlNode::Kind::block;
  if (root.kind != YamlNode::Kind::block) {
    throw Error(2108, at(place, root.mark),
                root.kind == YamlNode::Kind::list ? "the file is a list, not a block of keys"
                                                  : "the file is " + shown(root.text) + ", not a block of keys",
                "write KEY: VALUE lines, as in configs/quickstart.yaml");
  }
  return root;
}

YamlNode read_override_value(std::string_view text, const PlaceOf& place_of) {
  check_text(text, place_of);
  if (!text.empty() && std::string_view("\"'[{").find(text.front()) != std::string_view::npos)
    return parse(text, place_of);
  if (is_null_word(text)) return YamlNode{.kind = YamlNode::Kind::null};
  return YamlNode{.kind = YamlNode::Kind::scalar, .text = std::string(text)};
}

std::string at(const std::string& place, Mark mark) {
  return place + ":" + std::to_string(mark.line) + ":" + std::to_string(mark.column);
}

std::string shown(std::string_view text) {
  constexpr std::size_t kMaxShown = 80;
  constexpr char kHex[] = "0123456789abcdef";
  std::string result;
  bool plain = !text.empty() && text.front() != ' ' && text.back() != ' ';
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool starts_character = (byte & 0xC0) != 0x80;
    if (result.size() >= kMaxShown && starts_character) {
      result += "...";
      break;
    }
    if (byte < 0x20 || byte == 0x7F) {
      result += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
      plain = false;
    } else {
      result += text[i];
    }
  }
  return plain ? result : "\"" + result + "\"";
}

std::string shown_value(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::null: return "null";
    case YamlNode::Kind::scalar: return shown(node.text);
    case YamlNode::Kind::list: return "a list of " + std::to_string(node.items.size());
    case YamlNode::Kind::block: return "a block";
  }
  return {};
}

}  // namespace trireme::config
