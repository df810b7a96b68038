// A Tokenizer from a BpeSpec.
#pragma once
#include <memory>

#include "data/tokenizer_files.h"

namespace trireme::data {

// files.format is tokenizer_json or vocab_merges. Errors as read_bpe_spec and Pretokenizer.
std::unique_ptr<Tokenizer> load_bpe_tokenizer(const TokenizerFiles& files);

}  // namespace trireme::data
