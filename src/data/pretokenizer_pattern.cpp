#include "data/pretokenizer_pattern.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "base/error.h"
#include "data/pretokenizer_unicode.h"
#include "data/tokenizer_text.h"

namespace trireme::data {
namespace {

constexpr std::size_t kMaxPatternBytes = 20'000;
constexpr int kMaxDepth = 50;
constexpr int kMaxRepeat = 1000;

constexpr std::string_view kCategories[] = {
    "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Mn", "Mc", "Me", "N",  "Nd", "Nl", "No", "P",  "Pc",
    "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S", "Sm", "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp",
};

void append_hex(char32_t code_point, std::string& out) {
  constexpr std::string_view digits = "0123456789abcdef";
  out += "\\x{";
  bool started = false;
  for (int shift = 20; shift >= 0; shift -= 4) {
    const auto digit = code_point >> shift & 0xF;
    started = started || digit != 0 || shift == 0;
    if (started) out.push_back(digits[digit]);
  }
  out.push_back('}');
}

bool is_hex(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
char32_t lower(char32_t c) {
  return c >= 'A' && c <= 'Z' ? c + 32 : c;
}

// Oniguruma lets one letter match two under (?i ("ss" and U+00DF); PCRE2 does not.
bool folds_with_previous(char32_t previous, char32_t c) {
  constexpr std::string_view pairs[] = {"ss", "ff", "fi", "fl", "st"};
  if (previous >= 0x80 || c >= 0x80) return true;
  return std::any_of(std::begin(pairs), std::end(pairs), [&](std::string_view p) {
    return char32_t(p[0]) == lower(previous) && char32_t(p[1]) == lower(c);
  });
}

class Translator {
 public:
  Translator(std::string_view pattern, const std::string& place) : pattern_(pattern), place_(place) {}

  std::string run() {
    if (pattern_.empty()) refuse("an empty pattern");
    if (pattern_.size() > kMaxPatternBytes) refuse("a pattern of more than 20000 bytes");
    if (valid_utf8_prefix(pattern_) != pattern_.size()) refuse("a pattern that is not UTF-8");
    alternatives(0, false);
    if (at_ < pattern_.size()) refuse("an unmatched )");
    return std::move(out_);
  }

 private:
  std::string_view pattern_;
  const std::string& place_;
  std::size_t at_ = 0;
  std::string out_;
  char32_t previous_ = 0;  // the literal just before, 0 where there is none

  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(4108, place_,
                "the regex has " + what + " at byte " + std::to_string(at_) +
                    ", which is not supported: " + std::string(pattern_.substr(0, 200)),
                "only what splits alike in Oniguruma and PCRE2 is accepted");
  }

  bool has(std::string_view text) const { return pattern_.substr(at_, text.size()) == text; }
  bool take(std::string_view text) {
    if (!has(text)) return false;
    at_ += text.size();
    return true;
  }
  char peek() const { return at_ < pattern_.size() ? pattern_[at_] : '\0'; }

  void alternatives(int depth, bool ignore_case) {
    if (depth > kMaxDepth) refuse("groups nested more than 50 deep");
    previous_ = 0;
    while (at_ < pattern_.size() && peek() != ')') {
      if (take("|")) {
        out_.push_back('|');
        previous_ = 0;
        continue;
      }
      atom(depth, ignore_case);
      quantifier();
    }
  }

  void atom(int depth, bool ignore_case) {
    switch (peek()) {
      case '(': previous_ = 0, group(depth, ignore_case), previous_ = 0; return;
      case '[': previous_ = 0, char_class(ignore_case); return;
      case '.': ++at_, previous_ = 0, out_ += "[^\\n]"; return;
      case '\\':
        if (class_escape(ignore_case)) {
          previous_ = 0;
          return;
        }
        break;
      case '^':
      case '$':
      case '?':
      case '*':
      case '+':
      case '{':
      case '}':
      case ']': refuse(std::string("\"") + peek() + "\" here");
      default: break;
    }
    const char32_t c = literal();
    if (ignore_case && previous_ != 0 && folds_with_previous(previous_, c)) {
      refuse("letters that (?i: can match as one");
    }
    if (ignore_case && c >= 0x80) refuse("letters outside ASCII in (?i:");
    previous_ = c;
    append_hex(c, out_);
  }

  void group(int depth, bool ignore_case) {
    struct Opening {
      std::string_view onig, pcre;
      bool ignore_case;
    };
    const std::array<Opening, 8> openings = {{{"(?:", "(?:", ignore_case},
                                              {"(?i:", "(?i:", true},
                                              {"(?=", "(?=", ignore_case},
                                              {"(?!", "(?!", ignore_case},
                                              {"(?<=", "(?<=", ignore_case},
                                              {"(?<!", "(?<!", ignore_case},
                                              {"(?>", "(?>", ignore_case},
                                              {"(", "(?:", ignore_case}}};
    for (const Opening& opening : openings) {
      if (opening.onig == "(" && (has("(?") || has("(*"))) break;
      if (!take(opening.onig)) continue;
      out_ += opening.pcre;
      alternatives(depth + 1, opening.ignore_case);
      if (!take(")")) refuse("a group that is not closed");
      out_.push_back(')');
      return;
    }
    refuse("the group " + std::string(pattern_.substr(at_, 4)));
  }

  void quantifier() {
    bool counted = false;
    if (peek() == '?' || peek() == '*' || peek() == '+') {
      out_.push_back(pattern_[at_++]);
    } else if (peek() == '{') {
      counts();
      counted = true;
    } else {
      return;
    }
    previous_ = 0;
    if (!counted && (peek() == '?' || peek() == '+')) out_.push_back(pattern_[at_++]);
    // a{2}+, a{2}? and a** mean other things in Ruby's dialect
    if (peek() == '?' || peek() == '*' || peek() == '+' || peek() == '{') refuse("a quantifier of a quantifier");
  }

  int number() {
    int value = 0;
    if (!is_digit(peek())) refuse("a repeat count that is no number");
    while (is_digit(peek())) {
      value = value * 10 + (pattern_[at_++] - '0');
      if (value > kMaxRepeat) refuse("a repeat count above 1000");
    }
    return value;
  }

  void counts() {
    ++at_;
    const int low = peek() == ',' ? 0 : number();
    out_ += "{" + std::to_string(low);
    if (take(",")) {
      out_.push_back(',');
      if (peek() != '}') {
        const int high = number();
        if (high < low) refuse("a repeat range that runs backwards");
        out_ += std::to_string(high);
      }
    }
    if (!take("}")) refuse("a repeat count that is not closed");
    out_.push_back('}');
  }

  // \s \S \d \D \p{..} \P{..}, also inside classes. False where the escape is a literal.
  bool class_escape(bool ignore_case) {
    const char kind = at_ + 1 < pattern_.size() ? pattern_[at_ + 1] : '\0';
    if (kind == 's' || kind == 'S' || kind == 'd' || kind == 'D') {
      out_ += {'\\', kind};
      at_ += 2;
      return true;
    }
    if (kind != 'p' && kind != 'P') return false;
    const std::size_t close = pattern_.find('}', at_);
    if (close == std::string_view::npos || pattern_[at_ + 2] != '{') refuse("a \\p without {category}");
    std::string_view name = pattern_.substr(at_ + 3, close - at_ - 3);
    bool negated = kind == 'P';
    if (!name.empty() && name.front() == '^') {
      negated = !negated;
      name.remove_prefix(1);
    }
    if (std::find(std::begin(kCategories), std::end(kCategories), name) == std::end(kCategories)) {
      refuse("the property \\p{" + std::string(name.substr(0, 40)) + "}");
    }
    if (ignore_case && (name == "Lu" || name == "Ll" || name == "Lt")) refuse("a case property in (?i:");
    out_ += negated ? "\\P{" : "\\p{";
    out_.append(name).push_back('}');
    at_ = close + 1;
    return true;
  }

  char32_t hex_digits(std::size_t at, std::size_t count) const {
    char32_t value = 0;
    for (std::size_t i = at; i < at + count; ++i) {
      if (i >= pattern_.size() || !is_hex(pattern_[i])) refuse("an escape with bad hexadecimal digits");
      const char c = pattern_[i];
      value = value << 4 | static_cast<char32_t>(is_digit(c) ? c - '0' : (c | 32) - 'a' + 10);
    }
    return value;
  }

  char32_t hex_escape(char kind) {
    std::size_t begin = at_ + 2, count = kind == 'u' ? 4 : 2, next = begin + count;
    if (kind == 'x' && begin < pattern_.size() && pattern_[begin] == '{') {
      const std::size_t close = pattern_.find('}', begin);
      if (close == std::string_view::npos || close - begin < 2 || close - begin > 7) refuse("a bad \\x{...}");
      count = close - begin - 1;
      next = close + 1;
      ++begin;
    } else if (kind == 'x' && hex_digits(begin, 1) >= 8) {
      refuse("a \\x escape of a single byte above 7f");
    }
    const char32_t value = hex_digits(begin, count);
    if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) refuse("an escape that is no code point");
    at_ = next;
    return value;
  }

  char32_t literal() {
    char32_t c = 0;
    if (peek() != '\\') {
      c = code_point_at(pattern_, at_);
      at_ += utf8_length(static_cast<unsigned char>(pattern_[at_]));
    } else {
      c = escaped_literal();
    }
    if (touches_stand_in(c, c)) refuse("a character newer than Unicode 14 or one that stands for it");
    return c;
  }

  char32_t escaped_literal() {
    if (at_ + 1 == pattern_.size()) refuse("a lone \\ at the end");
    const char kind = pattern_[at_ + 1];
    if (kind == 'x' || kind == 'u') return hex_escape(kind);
    constexpr std::string_view names = "rntfv", values = "\r\n\t\f\v";
    if (const std::size_t i = names.find(kind); i != std::string_view::npos) {
      at_ += 2;
      return static_cast<char32_t>(values[i]);
    }
    if (is_letter(kind) || is_digit(kind) || static_cast<unsigned char>(kind) >= 0x80 || kind == '\0') {
      refuse("the escape " + std::string(pattern_.substr(at_, 2)));
    }
    at_ += 2;
    return static_cast<char32_t>(kind);
  }

  void char_class(bool ignore_case) {
    ++at_;
    out_.push_back('[');
    if (take("^")) out_.push_back('^');
    if (peek() == ']') refuse("an empty class");
    while (at_ < pattern_.size() && peek() != ']') {
      if (peek() == '[') refuse("a class inside a class");
      if (has("&&")) refuse("an intersection of classes");
      class_item(ignore_case);
    }
    if (!take("]")) refuse("a class that is not closed");
    out_.push_back(']');
  }

  void class_item(bool ignore_case) {
    if (peek() == '\\' && class_escape(ignore_case)) {
      if (peek() == '-' && at_ + 1 < pattern_.size() && pattern_[at_ + 1] != ']')
        refuse("a range that begins with a class");
      return;
    }
    const char32_t first = literal();
    char32_t last = first;
    if (peek() == '-' && at_ + 1 < pattern_.size() && pattern_[at_ + 1] != ']') {
      ++at_;
      if (peek() == '[') refuse("a class inside a class");
      if (peek() == '\\' && at_ + 1 < pattern_.size() &&
          std::string_view("sSdDpP").find(pattern_[at_ + 1]) != std::string_view::npos) {
        refuse("a range that ends with a class");
      }
      last = literal();
      if (last < first) refuse("a range that runs backwards");
      if (touches_stand_in(first, last)) refuse("a range over characters newer than Unicode 14");
    }
    if (ignore_case && last >= 0x80) refuse("letters outside ASCII in (?i:");
    append_hex(first, out_);
    if (last != first) {
      out_.push_back('-');
      append_hex(last, out_);
    }
  }
};

}  // namespace

std::string translate_pattern(std::string_view pattern, const std::string& place) {
  return Translator(pattern, place).run();
}

std::string quote_pattern(std::string_view text) {
  std::string quoted;
  for (const char c : text) {
    if (std::string_view("\\.^$|()[]{}?*+-&#/ ").find(c) != std::string_view::npos) quoted.push_back('\\');
    quoted.push_back(c);
  }
  return quoted;
}

}  // namespace trireme::data
