// What a BPE tokenizer's files say, checked.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "data/bpe.h"
#include "data/bpe_alphabet.h"
#include "data/pretokenizer.h"
#include "data/tokenizer_added.h"
#include "data/tokenizer_decoder.h"
#include "data/tokenizer_files.h"
#include "data/tokenizer_normalizer.h"

namespace trireme::data {

constexpr std::int32_t kMaxVocabulary = 1 << 22;  // ids are below; far above any tokenizer, and memory stays bounded

struct BpeToken {
  std::string bytes;      // what it stands for in text; for characters: as the vocabulary spells it
  bool exists = false;    // ids may have gaps
  bool in_model = false;  // in the model's vocabulary, and spelt in its alphabet
};

struct BpeSpec {
  std::string place;             // the main file, for errors
  std::vector<BpeToken> tokens;  // by id
  AlphabetSpec alphabet;
  std::vector<Merge> merges;                         // by rank
  std::vector<std::pair<char32_t, char32_t>> joins;  // characters only: where a merge's two tokens meet
  bool ignore_merges = false;                        // a word that is a token is taken whole
  std::vector<NormalizerStep> normalizer;
  std::vector<PretokenizerStep> steps;
  std::vector<AddedToken> added;
  DecoderSpec decoder;
  SpecialTokens special;
  std::int32_t end_of_document = -1;
};

// Errors TR4103 (no JSON, too large, too deep, a key twice), TR4104 (a field of the wrong type), TR4105 (not
// supported), TR4106 (vocabulary), TR4107 (merges), TR4109 (no end-of-document token), TR4112 (added tokens), TR4113
// (post-processor).
BpeSpec read_bpe_spec(const TokenizerFiles& files);

// Of everything in it that decides the ids.
std::string digest_of(const BpeSpec& spec);

}  // namespace trireme::data
