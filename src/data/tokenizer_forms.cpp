#include "data/tokenizer_forms.h"

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

// Marks, and letters that compose or decompose, that Unicode got after version 9 (up to 16): unknown to tokenizers, so
// left as they are.
constexpr Range kInert[] = {
    {0x7FD, 0x7FD},     {0x897, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xC3C, 0xC3C},
    {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},
    {0x32FF, 0x32FF},   {0xA7F2, 0xA7F4},   {0xA82C, 0xA82C},   {0xAB69, 0xAB69},   {0x105C9, 0x105C9},
    {0x105D2, 0x105D2}, {0x105DA, 0x105DA}, {0x105E4, 0x105E4}, {0x10781, 0x107BA}, {0x10D24, 0x10D27},
    {0x10D69, 0x10D6D}, {0x10EAB, 0x10EAC}, {0x10EFC, 0x10EFF}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85},
    {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x11380, 0x113E2}, {0x1145E, 0x1145E}, {0x11839, 0x1183A},
    {0x11930, 0x11930}, {0x11938, 0x11938}, {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0},
    {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45},
    {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x16100, 0x1612F}, {0x16D63, 0x16D6A}, {0x16FF0, 0x16FF1},
    {0x1E030, 0x1E06D}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF},
    {0x1E4EC, 0x1E4EF}, {0x1E5EE, 0x1E5EF}, {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9},
};

constexpr char32_t kFirstPlain = 0x30000;  // everything from here on is a starter that stands for itself
constexpr auto kCompose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);

// Everything below is a starter that stands for itself.
char32_t first_checked(UnicodeForm form) {
  return form == UnicodeForm::nfc ? 0x300 : 0xA0;
}

bool composes(UnicodeForm form) {
  return form == UnicodeForm::nfc || form == UnicodeForm::nfkc;
}

utf8proc_option_t decompose_options(UnicodeForm form) {
  const bool compatible = form == UnicodeForm::nfkc || form == UnicodeForm::nfkd;
  return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0));
}

int combining_class(char32_t c) {
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class;
}

// The decomposition of one code point at the end of points.
void append_decomposed(char32_t c, UnicodeForm form, std::vector<char32_t>& points) {
  std::array<utf8proc_int32_t, 32> parts;  // the longest has 18
  int boundary = 0;
  const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts.data(), parts.size(),
                                             decompose_options(form), &boundary);
  TRIREME_CHECK(count >= 0 && count <= static_cast<utf8proc_ssize_t>(parts.size()), "decomposition");
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
  plain,  // a starter that stands for itself and never joins with what is before it: a segment may begin with it
  inert,  // the same, but it does not join with what follows either
  mixes,  // a mark, a second half, or something that decomposes
};

class KindTable {
 public:
  explicit KindTable(UnicodeForm form) {
    std::vector<char32_t> points;
    for (char32_t c = first_checked(form); c < kFirstPlain; ++c) {
      if (c >= 0xD800 && c <= 0xDFFF) continue;
      if (combining_class(c) != 0) kinds_[c] = Kind::mixes;
      points.clear();
      append_decomposed(c, form, points);
      const bool changed = points.size() != 1 || points[0] != c;
      if (!composes(form)) {
        if (changed) kinds_[c] = Kind::mixes;
        continue;
      }
      for (std::size_t i = 1; i < points.size(); ++i) kinds_[points[i]] = Kind::mixes;
      if (changed && (compose(points) != 1 || points[0] != c)) kinds_[c] = Kind::mixes;
    }
    for (const Range& range : kInert) {
      for (char32_t c = range.first; c <= range.last; ++c) kinds_[c] = Kind::inert;
    }
  }
  Kind operator[](char32_t c) const { return c < kFirstPlain ? kinds_[c] : Kind::plain; }

 private:
  std::vector<Kind> kinds_ = std::vector<Kind>(kFirstPlain, Kind::plain);
};

// Immutable; a few milliseconds at the first use of each form.
const KindTable& kind_table(UnicodeForm form) {
  switch (form) {
    case UnicodeForm::nfc: {
      static const KindTable table(UnicodeForm::nfc);
      return table;
    }
    case UnicodeForm::nfd: {
      static const KindTable table(UnicodeForm::nfd);
      return table;
    }
    case UnicodeForm::nfkc: {
      static const KindTable table(UnicodeForm::nfkc);
      return table;
    }
    default: {
      static const KindTable table(UnicodeForm::nfkd);
      return table;
    }
  }
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

void UnicodeNormalizer::append_normalized(std::string_view segment) {
  points_.clear();
  for (std::size_t at = 0; at < segment.size(); at += utf8_length(static_cast<unsigned char>(segment[at]))) {
    append_decomposed(code_point_at(segment, at), form_, points_);
  }
  order_marks(points_);
  const std::size_t count = composes(form_) ? compose(points_) : points_.size();
  std::array<char, 4> bytes;
  for (std::size_t i = 0; i < count; ++i) out_.append(bytes.data(), write_utf8(points_[i], bytes.data()));
}

std::string_view UnicodeNormalizer::normalize(std::string_view text) {
  std::size_t at = skip_ascii(text, 0);
  if (at == text.size()) return text;
  const KindTable& kinds = kind_table(form_);
  out_.clear();
  bool changed = false;
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
    const Kind kind = kinds[code_point_at(text, at)];
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
    changed = true;
    copied = segment = at;
  }
  if (!changed) return text;
  out_.append(text, copied);
  return out_;
}

namespace {

struct LowerCase {
  char32_t first, last;
  char32_t lower;  // of the first; the others follow
};

// Since Unicode 16, which utf8proc 2.8 does not know.
constexpr LowerCase kNewLowerCase[] = {
    {0x1C89, 0x1C89, 0x1C8A},    {0xA7CB, 0xA7CB, 0x264},     {0xA7CC, 0xA7CC, 0xA7CD}, {0xA7CE, 0xA7CE, 0xA7CF},
    {0xA7D2, 0xA7D2, 0xA7D3},    {0xA7D4, 0xA7D4, 0xA7D5},    {0xA7DA, 0xA7DA, 0xA7DB}, {0xA7DC, 0xA7DC, 0x19B},
    {0x10D50, 0x10D65, 0x10D70}, {0x16EA0, 0x16EB8, 0x16EBB},
};

char32_t lower_case(char32_t c) {
  for (const LowerCase& row : kNewLowerCase) {
    if (c >= row.first && c <= row.last) return row.lower + (c - row.first);
  }
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

}  // namespace

void append_lower_case(std::string_view text, std::string& out) {
  std::array<char, 4> bytes;
  for (std::size_t at = 0; at < text.size();) {
    const auto lead = static_cast<unsigned char>(text[at]);
    if (lead < 0x80) {
      out.push_back(static_cast<char>(lead >= 'A' && lead <= 'Z' ? lead + 32 : lead));
      ++at;
      continue;
    }
    const char32_t c = code_point_at(text, at);
    at += utf8_length(lead);
    if (c == 0x130) {
      out.append("i\u0307");
      continue;
    }
    out.append(bytes.data(), write_utf8(lower_case(c), bytes.data()));
  }
}

}  // namespace trireme::data
