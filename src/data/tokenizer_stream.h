// Text of tokens as they come, for output that people watch.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "data/tokenizer.h"

namespace trireme::data {

// All that push and finish return, one after the other, is decode() of all ids with U+FFFD for what is no UTF-8. Each
// part is whole characters: bytes of one that is not complete yet wait.
class TextStream {
 public:
  // The tokenizer must outlive this.
  explicit TextStream(const Tokenizer& tokenizer, bool skip_special = false)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}

  // Ids before those to be shown, a prompt: they decide about a space at the seam, and are not returned.
  void pass_over(std::span<const std::int32_t> ids);

  std::string push(std::int32_t id);  // Error TR4110 as Tokenizer::decode
  std::string finish();               // what still waited; then the stream may begin another text

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_;
  DecodeState state_;
  std::string waiting_;
};

}  // namespace trireme::data
