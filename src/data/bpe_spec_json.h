// The parts of a tokenizer.json, each read into its place in a BpeSpec or refused.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/bpe_spec.h"
#include "data/bpe_vocabulary.h"
#include "data/tokenizer_json.h"

namespace trireme::data {

struct BpeModelOptions {
  std::string place;
  std::optional<std::string> unknown;  // unk_token
  bool fuse_unknown = false;
  bool byte_fallback = false;
};

// What happens before the model: normalizer and pre-tokenizer, and with them whether symbols are bytes or characters.
// That the file cuts or pads texts is said and not done. (bpe_spec_input.cpp)
void read_pipeline(const JsonPlace& root, BpeSpec& spec);

// What happens after it: the decoder, and the tokens that the post-processor adds. The vocabulary has been read.
// (bpe_spec_output.cpp)
void read_decoder(const JsonPlace& decoder, BpeSpec& spec);
void read_post_processor(const JsonPlace& processor, BpeSpec& spec);

// Of Metaspace, as pre-tokenizer and as decoder.
PretokenizerStep::Prepend read_prepend_scheme(const JsonPlace& metaspace);
std::string read_character(const JsonPlace& value);  // TR4104 where it is not one character

BpeModelOptions read_model_options(const JsonPlace& model, BpeSpec& spec);
void read_merges(const JsonPlace& merges, VocabularyReader& vocabulary);
void read_added_tokens(const JsonPlace& tokens, VocabularyReader& vocabulary);

// Tokens and where they stand, from tokenizer_config.json ({id: {content, ...}}) and added_tokens.json ({content: id}).
std::vector<std::pair<AddedToken, std::string>> read_added_tokens_decoder(const JsonPlace& tokens);
std::vector<std::pair<AddedToken, std::string>> read_added_tokens_by_name(const JsonPlace& tokens);

void append_gpt2_steps(bool add_prefix_space, const std::string& place, std::vector<PretokenizerStep>& steps);

}  // namespace trireme::data
