#include "config/json.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <map>

#include "base/error.h"
#include "config/text_guard.h"

namespace trireme::config {
namespace {

bool is_word_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '+' || c == '-' || c == '.';
}

// The grammar of JSON: no leading zeros or plus, digits on both sides of the point.
bool is_number(std::string_view word) {
  std::size_t at = word.starts_with('-') ? 1 : 0;
  const auto digits = [&] {
    const std::size_t first = at;
    while (at < word.size() && word[at] >= '0' && word[at] <= '9') ++at;
    return at - first;
  };
  const bool leads_with_zero = at < word.size() && word[at] == '0';
  const std::size_t whole = digits();
  if (whole == 0 || (leads_with_zero && whole > 1)) return false;
  if (at < word.size() && word[at] == '.') {
    ++at;
    if (digits() == 0) return false;
  }
  if (at < word.size() && (word[at] == 'e' || word[at] == 'E')) {
    ++at;
    if (at < word.size() && (word[at] == '+' || word[at] == '-')) ++at;
    if (digits() == 0) return false;
  }
  return at == word.size();
}

void append_utf8(std::string& text, std::uint32_t code) {
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
  } else if (code < 0x10000) {
    text += {static_cast<char>(0xE0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3F)),
             static_cast<char>(0x80 | (code & 0x3F))};
  } else {
    text += {static_cast<char>(0xF0 | code >> 18), static_cast<char>(0x80 | (code >> 12 & 0x3F)),
             static_cast<char>(0x80 | (code >> 6 & 0x3F)), static_cast<char>(0x80 | (code & 0x3F))};
  }
}

class Reader {
 public:
  Reader(std::string_view text, PlaceOf place_of) : text_(text), place_of_(std::move(place_of)) {}

  YamlNode read() {
    skip_space();
    if (ended()) fail("the file is empty", "write an object: { \"KEY\": VALUE }");
    if (peek() != '{') refuse_root();
    YamlNode root = read_value(1);
    skip_space();
    if (!ended()) fail("text after the end of the object", "one object is the whole file");
    return root;
  }

 private:
  bool ended() const { return at_ == text_.size(); }
  char peek() const { return text_[at_]; }

  void advance() {
    const bool starts_character = (static_cast<unsigned char>(peek()) & 0xC0) != 0x80;
    if (peek() == '\n') {
      mark_ = {mark_.line + 1, 1};
    } else if (starts_character) {
      ++mark_.column;
    }
    ++at_;
  }

  [[noreturn]] void fail(const std::string& what, const std::string& remedy) const { fail(mark_, what, remedy); }
  [[noreturn]] void fail(Mark mark, const std::string& what, const std::string& remedy) const {
    throw Error(2107, place_of_(mark), what, remedy);
  }
  [[noreturn]] void refuse(Mark mark, const std::string& what, const std::string& remedy) const {
    throw Error(2108, place_of_(mark), what, remedy);
  }

  [[noreturn]] void refuse_root() const {
    const std::string_view rest = text_.substr(at_);
    const bool looks_encoded = rest.size() >= 16 && std::all_of(rest.begin(), rest.end(), [](char c) {
                                 return is_word_character(c) || c == '=' || c == '/' || c == '\n' || c == '\r';
                               });
    if (looks_encoded) {
      refuse(mark_, "this looks like base64, which is not read", "write the JSON text itself into the file");
    }
    refuse(mark_, "the file is not an object",
           "it begins with { and has \"KEY\": VALUE pairs; keys without braces, as "
           "HJSON has them, are not read");
  }

  void skip_space() {
    while (!ended()) {
      if (std::string_view(" \t\r\n").find(peek()) != std::string_view::npos) {
        advance();
      } else if (peek() == '#' || text_.substr(at_, 2) == "//") {
        while (!ended() && peek() != '\n') advance();
      } else if (text_.substr(at_, 2) == "/*") {
        skip_comment();
      } else {
        return;
      }
    }
  }

  void skip_comment() {
    const Mark start = mark_;
    const std::size_t end = text_.find("*/", at_ + 2);
    if (end == std::string_view::npos) fail(start, "a comment that does not end", "close it with */");
    while (at_ < end + 2) advance();
  }

  // No text nests deeper than the limit, so this recursion ends there.
  YamlNode read_value(int depth) {
    YamlNode node{.mark = mark_};
    if (peek() == '{' || peek() == '[') {
      if (depth > kMaxDepth) {
        refuse(mark_, "nesting deeper than " + std::to_string(kMaxDepth) + " levels", "no key needs so many levels");
      }
      return peek() == '{' ? read_object(depth) : read_list(depth);
    }
    if (peek() == '"') {
      node.kind = YamlNode::Kind::scalar;
      node.text = read_string();
      node.quoted = true;
      return node;
    }
    const std::string word = read_word();
    if (word == "null") return node;
    node.kind = YamlNode::Kind::scalar;
    node.text = word;
    if (word == "true" || word == "false" || is_number(word)) return node;
    if (word.empty() && !ended() && peek() == '\'') fail(node.mark, "a single quote", "JSON has text in double quotes");
    if (word.empty()) fail(node.mark, "a value is missing here", "write \"KEY\": VALUE");
    if (word == "True" || word == "False" || word == "None") {
      fail(node.mark, word + " is Python's word", "JSON writes true, false and null");
    }
    const bool numeric = word.front() == '-' || word.front() == '+' || word.front() == '.' ||
                         std::isdigit(static_cast<unsigned char>(word.front())) != 0;
    if (numeric || word == "NaN" || word == "Infinity") {
      fail(node.mark, shown(word) + " is not a number of JSON", "write it as 16, -0.5 or 5e-5");
    }
    refuse(node.mark, "the text " + shown(word) + " has no quotes",
           "write \"" + word +
               "\": text without quotes is "
               "HJSON, which is not read");
  }

  std::string read_word() {
    std::string word;
    while (!ended() && is_word_character(peek())) {
      word += peek();
      advance();
    }
    return word;
  }

  // A comma between values, and perhaps behind the last one. True where the end was met.
  bool ends(char end, bool is_first) {
    skip_space();
    if (!ended() && !is_first && peek() == ',') {
      advance();
      skip_space();
    } else if (!ended() && !is_first && peek() != end) {
      fail("a comma is missing", "values are separated by commas; text stands in quotes");
    }
    if (ended()) fail("the file ends inside an object or a list", "close it with } or ]");
    if (peek() != end) return false;
    advance();
    return true;
  }

  YamlNode read_list(int depth) {
    YamlNode node{.kind = YamlNode::Kind::list, .mark = mark_};
    advance();
    while (!ends(']', node.items.empty())) node.items.push_back(read_value(depth + 1));
    return node;
  }

  YamlNode read_object(int depth) {
    YamlNode node{.kind = YamlNode::Kind::block, .mark = mark_};
    std::map<std::string, Mark> seen;
    advance();
    while (!ends('}', node.entries.empty())) {
      YamlNode::Entry entry{.key = {}, .mark = mark_, .value = {}};
      entry.key = read_key();
      const auto [first, is_new] = seen.emplace(entry.key, entry.mark);
      if (!is_new) {
        throw Error(2103, place_of_(entry.mark),
                    "the key " + shown(entry.key) + " appears twice in the same object, first in line " +
                        std::to_string(first->second.line),
                    "keep one of them");
      }
      skip_space();
      if (ended() || peek() != ':')
        fail("a colon is missing after the key " + shown(entry.key), "write \"KEY\": VALUE");
      advance();
      skip_space();
      if (ended()) fail("the file ends before the value of " + shown(entry.key), "write \"KEY\": VALUE");
      entry.value = read_value(depth + 1);
      node.entries.push_back(std::move(entry));
    }
    return node;
  }

  std::string read_key() {
    if (peek() == '"') return read_string();
    const Mark start = mark_;
    const std::string word = read_word();
    if (word.empty()) fail(start, "a key in double quotes is expected here", "write \"KEY\": VALUE");
    refuse(start, "the key " + shown(word) + " has no quotes",
           "write \"" + word + "\": keys without quotes are HJSON, which is not read");
  }

  std::string read_string() {
    const Mark start = mark_;
    std::string text;
    advance();
    while (!ended() && peek() != '"') {
      if (peek() == '\n') fail(start, "a text that does not end in its line", "close it with \"");
      if (peek() == '\\') {
        read_escape(text);
      } else {
        text += peek();
        advance();
      }
    }
    if (ended()) fail(start, "a text that does not end", "close it with \"");
    advance();
    return text;
  }

  void read_escape(std::string& text) {
    const Mark start = mark_;
    advance();
    const char c = ended() ? '\0' : peek();
    constexpr std::string_view kLetters = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
    if (const std::size_t letter = kLetters.find(c); c != '\0' && letter != std::string_view::npos) {
      text += kMeanings[letter];
      advance();
    } else if (c == 'u') {
      advance();
      append_utf8(text, read_code(start));
    } else {
      fail(start, "an unknown escape in a text", "after \\ comes one of \" \\ / b f n r t u");
    }
  }

  std::uint32_t read_code(Mark start) {
    const std::uint32_t code = read_four(start);
    if (code < 0xD800 || code > 0xDFFF) return code;
    const bool has_second = code < 0xDC00 && text_.substr(at_, 2) == "\\u";
    if (has_second) {
      advance();
      advance();
      const std::uint32_t low = read_four(start);
      if (low >= 0xDC00 && low <= 0xDFFF) return 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    fail(start, "half of a surrogate pair", "write the character itself, in UTF-8");
  }

  std::uint32_t read_four(Mark start) {
    std::uint32_t code = 0;
    for (int i = 0; i < 4; ++i) {
      if (ended() || std::isxdigit(static_cast<unsigned char>(peek())) == 0) {
        fail(start, "\\u without four hexadecimal digits", "write \\u00e9, or the character itself");
      }
      const char c = peek();
      code = code << 4 | static_cast<std::uint32_t>(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
      advance();
    }
    return code;
  }

  std::string_view text_;
  PlaceOf place_of_;
  std::size_t at_ = 0;
  Mark mark_;
};

}  // namespace

YamlNode read_json(std::string_view text, const std::string& place) {
  const PlaceOf place_of = [&](Mark mark) { return at(place, mark); };
  check_text(text, place_of, Indentation::any);
  return Reader(text, place_of).read();
}

}  // namespace trireme::config
