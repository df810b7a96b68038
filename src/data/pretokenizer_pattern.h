// Split regexes are written for Oniguruma (Ruby's dialect); this writes the same regex for PCRE2.
#pragma once
#include <string>
#include <string_view>

namespace trireme::data {

// What tokenizers' patterns use: literals, classes, \s \S \d \D \p{category}, groups (?: (?i: (?> and look-arounds,
// alternatives, quantifiers. Anything else, and all on whose meaning the two dialects differ (\w, \b, \h, ^, $, nested
// classes, back references), is Error TR4108 that names it and its place; nothing is passed on unread.
std::string translate_pattern(std::string_view pattern, const std::string& place);

// A pattern that matches exactly this text.
std::string quote_pattern(std::string_view text);

}  // namespace trireme::data
