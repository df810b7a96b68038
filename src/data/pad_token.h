// Which token fills up padded samples. No number of a run depends on it: padding is neither seen nor counted.
#pragma once
#include <cstdint>
#include <string>

#include "data/tokenizer.h"

namespace trireme::data {

// The id of `wanted`, which must be one token (Error TR4027); where it is empty that of tokenizer_config.json's
// pad_token, if the tokenizer knows it as one token; else the end-of-document id. what: as for load_tokenizer().
std::int32_t pad_token_of(const std::string& what, const std::string& wanted);

}  // namespace trireme::data
