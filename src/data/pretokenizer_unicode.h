// The regex engine of Hugging Face's tokenizers knows Unicode 16, PCRE2 10.42 knows Unicode 14, and the two disagree on
// whether U+180E is a space. So that a split falls at the same places with either, and with any later PCRE2, a regex is
// matched against a copy of the text in which such code points are replaced by older ones of the same category and
// length; only the offsets of the matches are used.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::data {

// Which of tokenizers' tables a pattern is matched by.
enum class CharacterTables : std::uint8_t { regex, digits, punctuation };  // digits: Unicode 17; punctuation: Unicode 8

// The text itself, or its copy in buffer where something had to be replaced. Equal length; text must be valid UTF-8.
std::string_view with_stand_ins(std::string_view text, CharacterTables tables, std::string& buffer);

// What stands in for the code point; 0 for itself.
char32_t regex_stand_in(char32_t code_point, CharacterTables tables = CharacterTables::regex);

// Whether a pattern that spells out this range would see the replacement.
bool touches_stand_in(char32_t first, char32_t last);

}  // namespace trireme::data
