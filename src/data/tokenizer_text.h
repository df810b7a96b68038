// UTF-8 as the tokenizers read it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace trireme::data {

// How many bytes from the start are valid UTF-8 (whole code points, no surrogates).
std::size_t valid_utf8_prefix(std::string_view text);

// Each maximal part of an ill-formed sequence becomes one U+FFFD, as in Python's bytes.decode("utf-8", "replace").
std::string replace_invalid_utf8(std::string_view text);

// How many bytes at the end begin a code point that lacks its last bytes: 0 .. 3.
std::size_t unfinished_utf8(std::string_view text);

// The first byte at or after `at` that is not ASCII, or the size.
inline std::size_t skip_ascii(std::string_view text, std::size_t at) {
  std::uint64_t block = 0;
  while (at + sizeof block <= text.size()) {
    std::memcpy(&block, text.data() + at, sizeof block);
    if ((block & 0x8080808080808080u) != 0) break;
    at += sizeof block;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

// The functions below need valid UTF-8.
inline std::size_t utf8_length(unsigned char lead) {
  return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

inline char32_t code_point_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + i])); };
  switch (utf8_length(static_cast<unsigned char>(text[at]))) {
    case 1: return byte(0);
    case 2: return (byte(0) & 0x1F) << 6 | (byte(1) & 0x3F);
    case 3: return (byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    default: return (byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
  }
}

// Where the code point that ends before `end` begins; end > 0.
std::size_t previous_code_point(std::string_view text, std::size_t end);

std::size_t write_utf8(char32_t code_point, char* out);  // up to 4 bytes; returns how many

bool is_white_space(char32_t code_point);     // the Unicode property
bool is_word_character(char32_t code_point);  // \w of Unicode regexes: letters, marks, decimal digits, connectors

}  // namespace trireme::data
