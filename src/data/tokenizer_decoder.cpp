#include "data/tokenizer_decoder.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace trireme::data {
namespace {

using Kind = DecoderStep::Kind;

constexpr std::size_t kMaxGrowth = 4;
constexpr std::size_t kAlwaysAllowed = 64;

void replace_all(std::string& text, std::string_view pattern, std::string_view content, std::size_t limit,
                 const std::string& place) {
  std::string out;
  std::size_t done = 0;
  for (std::size_t at = text.find(pattern); at != std::string::npos; at = text.find(pattern, done)) {
    if (out.size() + content.size() > limit) {
      throw Error(4105, place, "a decoder that makes tokens very much longer is not supported");
    }
    out.append(text, done, at - done).append(content);
    done = at + pattern.size();
  }
  if (done == 0) return;
  out.append(text, done);
  text = std::move(out);
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = static_cast<char>(c | 0x20);
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// The byte of "<0x41>", as Hugging Face reads it: two digits, small ones too, or a plus and one; -1 for other text.
int byte_of(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text.back() != '>') return -1;
  const int high = text[3] == '+' ? 0 : hex_digit(text[3]), low = hex_digit(text[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

}  // namespace

TokenDecoder::TokenDecoder(DecoderSpec spec, std::vector<std::string> texts)
    : spec_(std::move(spec)),
      first_differs_(std::any_of(spec_.each_token.begin(), spec_.each_token.end(),
                                 [](const DecoderStep& step) { return step.at_front_nothing; })) {
  pieces_.reserve(texts.size());
  for (const std::string& text : texts) pieces_.push_back(piece(text, false));
  if (first_differs_) texts_ = std::move(texts);
}

std::string TokenDecoder::piece(const std::string& text, bool is_first) const {
  std::string piece = text;
  const std::size_t limit = kMaxGrowth * text.size() + kAlwaysAllowed;
  for (const DecoderStep& step : spec_.each_token) {
    if (step.kind == Kind::replace) {
      replace_all(piece, step.pattern, step.content, limit, spec_.place);
    } else if (step.kind == Kind::metaspace) {
      replace_all(piece, step.pattern, is_first && step.at_front_nothing ? "" : " ", limit, spec_.place);
    } else {
      for (std::int32_t i = 0; i < step.count && piece.starts_with(step.pattern); ++i) {
        piece.erase(0, step.pattern.size());
      }
    }
  }
  if (const int byte = spec_.byte_tokens ? byte_of(piece) : -1; byte >= 0) piece.assign(1, static_cast<char>(byte));
  return piece;
}

void TokenDecoder::append(std::int32_t id, DecodeState& state, std::string& text) const {
  const bool is_first = state.tokens++ == 0;
  std::string first;
  if (is_first && first_differs_) first = piece(texts_[id], true);
  std::string_view added = is_first && first_differs_ ? first : pieces_[id];
  while (state.stripped < spec_.strip_count && !added.empty()) {
    if (!added.starts_with(spec_.strip_front)) {
      state.stripped = spec_.strip_count;
      break;
    }
    added.remove_prefix(spec_.strip_front.size());
    ++state.stripped;
  }
  if (spec_.spaces_between && !is_first) text.push_back(' ');
  text.append(added);
}

}  // namespace trireme::data
