#include "data/pad_token.h"

#include "base/error.h"

namespace trireme::data {

std::int32_t pad_token_of(const Tokenizer& tokenizer, const std::string& wanted) {
  if (wanted.empty()) return tokenizer.special().padding.value_or(tokenizer.end_of_document());
  const std::vector<std::int32_t> ids = tokenizer.encode(wanted);
  if (ids.size() == 1) return ids.front();
  throw Error(
      4027, "data.pad_token",
      "is \"" + wanted.substr(0, 80) + "\", which is " + std::to_string(ids.size()) + " tokens of the data's tokenizer",
      "name one of its tokens, or leave data.pad_token away");
}

}  // namespace trireme::data
