// What a byte-level BPE tokenizer's files say, checked.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/bpe.h"
#include "data/pretokenizer.h"
#include "data/tokenizer_added.h"
#include "data/tokenizer_files.h"

namespace trireme::data {

constexpr std::int32_t kMaxVocabulary = 1 << 22;  // ids are below; far above any tokenizer, and memory stays bounded

struct BpeToken {
  std::string bytes;
  bool exists = false;    // ids may have gaps
  bool in_model = false;  // in the model's vocabulary, and spelt in the byte alphabet
};

struct BpeSpec {
  std::string place;             // the main file, for errors
  std::vector<BpeToken> tokens;  // by id
  std::array<std::int32_t, 256> byte_ids{};
  std::optional<std::int32_t> unknown;  // stands for bytes without a token
  std::vector<Merge> merges;            // by rank
  bool ignore_merges = false;           // a word that is a token is taken whole
  bool nfc = false;
  std::vector<PretokenizerStep> steps;
  std::vector<AddedToken> added;
  std::int32_t end_of_document = -1;
};

// Errors TR4103 (no JSON, too large, too deep, a key twice), TR4104 (a field of the wrong type), TR4105 (not
// supported), TR4106 (vocabulary), TR4107 (merges), TR4109 (no end-of-document token), TR4112 (added tokens).
BpeSpec read_bpe_spec(const TokenizerFiles& files);

// Of everything in it that decides the ids.
std::string digest_of(const BpeSpec& spec);

}  // namespace trireme::data
