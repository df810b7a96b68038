// Which token fills up padded samples. No number of a run depends on it: padding is neither seen nor counted.
#pragma once
#include <cstdint>
#include <string>

#include "data/tokenizer.h"

namespace trireme::data {

// The id of `wanted`, which must be one token (Error TR4027); where it is empty the tokenizer's pad token, else its
// end-of-document id.
std::int32_t pad_token_of(const Tokenizer& tokenizer, const std::string& wanted);

}  // namespace trireme::data
