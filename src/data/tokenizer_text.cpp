#include "data/tokenizer_text.h"

#include <utf8proc.h>

#include <algorithm>

#include "data/pretokenizer_unicode.h"

namespace trireme::data {
namespace {

// One step of reading: a whole code point, or the part of an ill-formed sequence that counts as one.
struct Sequence {
  std::size_t length;
  bool valid;
};

struct SecondByte {
  unsigned char low, high;
};

// Overlong forms, surrogates and values above U+10FFFF all show in the second byte.
SecondByte second_byte_range(unsigned char lead) {
  switch (lead) {
    case 0xE0: return {0xA0, 0xBF};
    case 0xED: return {0x80, 0x9F};
    case 0xF0: return {0x90, 0xBF};
    case 0xF4: return {0x80, 0x8F};
    default: return {0x80, 0xBF};
  }
}

Sequence next_sequence(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {1, true};
  if (lead < 0xC2 || lead > 0xF4) return {1, false};
  const std::size_t wanted = utf8_length(lead);
  const std::size_t left = text.size() - at;
  const SecondByte range = second_byte_range(lead);
  if (left < 2 || byte(1) < range.low || byte(1) > range.high) return {1, false};
  for (std::size_t i = 2; i < wanted; ++i) {
    if (left <= i || (byte(i) & 0xC0) != 0x80) return {i, false};
  }
  return {wanted, true};
}

}  // namespace

std::size_t valid_utf8_prefix(std::string_view text) {
  std::size_t at = skip_ascii(text, 0);
  while (at < text.size()) {
    const Sequence sequence = next_sequence(text, at);
    if (!sequence.valid) return at;
    at += sequence.length;
    if (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) at = skip_ascii(text, at);
  }
  return at;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t good = valid_utf8_prefix(text.substr(at));
    out.append(text, at, good);
    at += good;
    if (at == text.size()) break;
    out.append("\xEF\xBF\xBD");
    at += next_sequence(text, at).length;
  }
  return out;
}

std::size_t unfinished_utf8(std::string_view text) {
  for (std::size_t count = std::min<std::size_t>(3, text.size()); count > 0; --count) {
    const std::size_t at = text.size() - count;
    const auto lead = static_cast<unsigned char>(text[at]);
    if (lead < 0xC2 || lead > 0xF4 || utf8_length(lead) <= count) continue;
    const Sequence sequence = next_sequence(text, at);
    if (!sequence.valid && sequence.length == count) return count;
  }
  return 0;
}

std::size_t previous_code_point(std::string_view text, std::size_t end) {
  std::size_t begin = end - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return begin;
}

std::size_t write_utf8(char32_t code_point, char* out) {
  const auto put = [&](std::size_t i, char32_t bits) { out[i] = static_cast<char>(bits); };
  const auto tail = [&](int shift) { return 0x80 | (code_point >> shift & 0x3F); };
  if (code_point < 0x80) {
    put(0, code_point);
    return 1;
  }
  if (code_point < 0x800) {
    put(0, 0xC0 | code_point >> 6), put(1, tail(0));
    return 2;
  }
  if (code_point < 0x10000) {
    put(0, 0xE0 | code_point >> 12), put(1, tail(6)), put(2, tail(0));
    return 3;
  }
  put(0, 0xF0 | code_point >> 18), put(1, tail(12)), put(2, tail(6)), put(3, tail(0));
  return 4;
}

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_word_character(char32_t c) {
  if (const char32_t older = regex_stand_in(c)) c = older;  // utf8proc 2.8 knows Unicode 15
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: break;
  }
  // Alphabetic symbols (circled and squared letters) and the two joiners.
  return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
         (c >= 0x1F170 && c <= 0x1F189) || c == 0x200C || c == 0x200D;
}

}  // namespace trireme::data
