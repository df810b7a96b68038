#include "data/tokenizer_nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <memory>

#include "base/error.h"
#include "data/tokenizer_text.h"

namespace trireme::data {
namespace {

struct Range {
  char32_t first, last;
};

// Marks and composing letters that Unicode got after version 9 (up to 16): unknown to tokenizers, so left as they are.
constexpr Range kInert[] = {
    {0x7FD, 0x7FD},     {0x897, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xC3C, 0xC3C},
    {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},
    {0xA82C, 0xA82C},   {0x105C9, 0x105C9}, {0x105D2, 0x105D2}, {0x105DA, 0x105DA}, {0x105E4, 0x105E4},
    {0x10D24, 0x10D27}, {0x10D69, 0x10D6D}, {0x10EAB, 0x10EAC}, {0x10EFC, 0x10EFF}, {0x10F46, 0x10F50},
    {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x11380, 0x113E2}, {0x1145E, 0x1145E},
    {0x11839, 0x1183A}, {0x11930, 0x11930}, {0x11938, 0x11938}, {0x1193D, 0x1193E}, {0x11943, 0x11943},
    {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42},
    {0x11D44, 0x11D45}, {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x16100, 0x1612F}, {0x16D63, 0x16D6A},
    {0x16FF0, 0x16FF1}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF},
    {0x1E4EC, 0x1E4EF}, {0x1E5EE, 0x1E5EF},
};

constexpr char32_t kFirstChecked = 0x300;  // everything below is a starter that stands for itself
constexpr char32_t kFirstPlain = 0x30000;  // and so is everything from here on
constexpr auto kCompose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
constexpr auto kDecompose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);

int combining_class(char32_t c) {
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class;
}

// Canonical decomposition of one code point at the end of points.
void append_decomposed(char32_t c, std::vector<char32_t>& points) {
  std::array<utf8proc_int32_t, 8> parts;
  int boundary = 0;
  const auto count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts.data(), parts.size(), kDecompose, &boundary);
  TRIREME_CHECK(count >= 0 && count <= static_cast<utf8proc_ssize_t>(parts.size()), "canonical decomposition");
  points.insert(points.end(), parts.begin(), parts.begin() + count);
}

std::size_t compose(std::vector<char32_t>& points) {
  static_assert(sizeof(char32_t) == sizeof(utf8proc_int32_t));
  const auto count = utf8proc_normalize_utf32(reinterpret_cast<utf8proc_int32_t*>(points.data()),
                                              static_cast<utf8proc_ssize_t>(points.size()), kCompose);
  TRIREME_CHECK(count >= 0, "canonical composition");
  return static_cast<std::size_t>(count);
}

// What the neighbours of each code point need to know.
enum class Kind : std::uint8_t {
  plain,  // a starter that stands for itself and never joins with what is before it: a border between segments
  inert,  // the same, but it does not join with what follows either
  mixes,  // a mark, a second half, or something that decomposes
};

class KindTable {
 public:
  KindTable() {
    std::vector<char32_t> points;
    for (char32_t c = kFirstChecked; c < kFirstPlain; ++c) {
      if (c >= 0xD800 && c <= 0xDFFF) continue;
      if (combining_class(c) != 0) kinds_[c] = Kind::mixes;
      points.clear();
      append_decomposed(c, points);
      for (std::size_t i = 1; i < points.size(); ++i) kinds_[points[i]] = Kind::mixes;
      if (compose(points) != 1 || points[0] != c) kinds_[c] = Kind::mixes;
    }
    for (const Range& range : kInert) {
      for (char32_t c = range.first; c <= range.last; ++c) kinds_[c] = Kind::inert;
    }
  }
  Kind operator[](char32_t c) const { return c < kFirstPlain ? kinds_[c] : Kind::plain; }

 private:
  std::vector<Kind> kinds_ = std::vector<Kind>(kFirstPlain, Kind::plain);
};

const KindTable& kind_table() {
  static const KindTable table;  // immutable; a few milliseconds at first use
  return table;
}

void order_marks(std::vector<char32_t>& points) {
  auto begin = points.begin();
  while (begin != points.end()) {
    if (combining_class(*begin) == 0) {
      ++begin;
      continue;
    }
    const auto end = std::find_if(begin, points.end(), [](char32_t c) { return combining_class(c) == 0; });
    if (end - begin > 1) {
      std::stable_sort(begin, end, [](char32_t a, char32_t b) { return combining_class(a) < combining_class(b); });
    }
    begin = end;
  }
}

}  // namespace

void NfcNormalizer::append_normalized(std::string_view segment) {
  points_.clear();
  for (std::size_t at = 0; at < segment.size(); at += utf8_length(static_cast<unsigned char>(segment[at]))) {
    append_decomposed(code_point_at(segment, at), points_);
  }
  order_marks(points_);
  const std::size_t count = compose(points_);
  std::array<char, 4> bytes;
  for (std::size_t i = 0; i < count; ++i) out_.append(bytes.data(), write_utf8(points_[i], bytes.data()));
}

std::string_view NfcNormalizer::normalize(std::string_view text) {
  std::size_t at = skip_ascii(text, 0);
  if (at == text.size()) return text;
  const KindTable& kinds = kind_table();
  out_.clear();
  std::size_t copied = 0;    // text before this is in out_
  std::size_t segment = at;  // where a segment that mixes would begin
  if (at > 0) segment = at - 1;
  while (at < text.size()) {
    const auto lead = static_cast<unsigned char>(text[at]);
    if (lead < 0x80) {
      at = skip_ascii(text, at);
      segment = at - 1;
      continue;
    }
    const std::size_t length = utf8_length(lead);
    const Kind kind = lead < 0xCC ? Kind::plain : kinds[code_point_at(text, at)];
    if (kind != Kind::mixes) {
      segment = kind == Kind::plain ? at : at + length;
      at += length;
      continue;
    }
    at += length;
    while (at < text.size() && static_cast<unsigned char>(text[at]) >= 0x80 &&
           kinds[code_point_at(text, at)] == Kind::mixes) {
      at += utf8_length(static_cast<unsigned char>(text[at]));
    }
    out_.append(text, copied, segment - copied);
    append_normalized(text.substr(segment, at - segment));
    copied = segment = at;
  }
  if (copied == 0) return text;
  out_.append(text, copied);
  return out_;
}

}  // namespace trireme::data
