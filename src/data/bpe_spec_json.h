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

// Everything but model and added_tokens: normalizer and pre-tokenizer go into spec; what only adds special tokens,
// cuts or pads is checked to change nothing here.
void read_pipeline(const JsonPlace& root, BpeSpec& spec);

BpeModelOptions read_model_options(const JsonPlace& model, BpeSpec& spec);
void read_merges(const JsonPlace& merges, VocabularyReader& vocabulary);
void read_added_tokens(const JsonPlace& tokens, VocabularyReader& vocabulary);

// Tokens and where they stand, from tokenizer_config.json ({id: {content, ...}}) and added_tokens.json ({content: id}).
std::vector<std::pair<AddedToken, std::string>> read_added_tokens_decoder(const JsonPlace& tokens);
std::vector<std::pair<AddedToken, std::string>> read_added_tokens_by_name(const JsonPlace& tokens);

void append_gpt2_steps(bool add_prefix_space, const std::string& place, std::vector<PretokenizerStep>& steps);

}  // namespace trireme::data
