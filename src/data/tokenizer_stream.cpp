#include "data/tokenizer_stream.h"

#include <utility>

#include "data/tokenizer_text.h"

namespace trireme::data {

void TextStream::pass_over(std::span<const std::int32_t> ids) {
  for (const std::int32_t id : ids) push(id);
}

std::string TextStream::push(std::int32_t id) {
  tokenizer_.decode_next(id, skip_special_, state_, waiting_);
  const std::size_t whole = waiting_.size() - unfinished_utf8(waiting_);
  std::string ready = replace_invalid_utf8(std::string_view(waiting_).substr(0, whole));
  waiting_.erase(0, whole);
  return ready;
}

std::string TextStream::finish() {
  state_ = {};
  return replace_invalid_utf8(std::exchange(waiting_, {}));
}

}  // namespace trireme::data
