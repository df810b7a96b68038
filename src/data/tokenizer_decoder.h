// Token ids back to text: the steps of tokenizer.json's decoder, worked out once for each token.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer.h"

namespace trireme::data {

struct DecoderStep {
  enum class Kind : std::uint8_t {
    replace,    // pattern by content
    strip,      // up to `count` characters `pattern` from the front
    metaspace,  // pattern by a space; with at_front_nothing, by nothing in the first token of a text
  };
  Kind kind = Kind::replace;
  std::string pattern;  // replace, metaspace: text; strip, metaspace: one character
  std::string content;
  std::int32_t count = 0;
  bool at_front_nothing = false;
};

struct DecoderSpec {
  std::string place;                    // for errors
  std::vector<DecoderStep> each_token;  // in order, on each token's text by itself
  bool byte_tokens = false;             // then <0x41> is the byte 0x41
  std::string strip_front;              // then up to strip_count of this character go from the front of the whole text
  std::int32_t strip_count = 0;
  bool spaces_between = false;  // no decoder at all: tokens are joined by spaces
};

// Immutable and thread-safe.
class TokenDecoder {
 public:
  // texts: of each id, as it is spelt. Error TR4105 where a step makes one very much longer.
  TokenDecoder(DecoderSpec spec, std::vector<std::string> texts);

  void append(std::int32_t id, DecodeState& state, std::string& text) const;

 private:
  DecoderSpec spec_;
  bool first_differs_;
  std::vector<std::string> texts_;   // where the first token of a text differs from others
  std::vector<std::string> pieces_;  // by id

  std::string piece(const std::string& text, bool is_first) const;
};

}  // namespace trireme::data
