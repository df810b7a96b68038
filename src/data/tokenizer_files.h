// Where a tokenizer's files lie and which of them decide it.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "data/tokenizer.h"

namespace trireme::data {

enum class TokenizerFormat { bytes, tokenizer_json, vocab_merges };

struct TokenizerFiles {
  TokenizerFormat format = TokenizerFormat::bytes;
  std::filesystem::path folder;            // empty for plain "bytes"
  std::filesystem::path main_file;         // tokenizer.json, vocab.json or the marker of the byte tokenizer
  std::filesystem::path config;            // tokenizer_config.json, empty where there is none
  std::vector<std::filesystem::path> all;  // all that load_tokenizer reads; empty for plain "bytes"
};

// what as in load_tokenizer. A folder may hold tokenizer.json, else vocab.json with merges.txt, else the marker file
// that save_tokenizer("bytes", ...) writes. Error TR4100 names what was looked for.
TokenizerFiles find_tokenizer_files(const std::string& what);

std::unique_ptr<Tokenizer> make_byte_tokenizer();

}  // namespace trireme::data
