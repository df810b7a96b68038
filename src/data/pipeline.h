// Inputs to token ids on several threads: one reads, num_workers check and tokenize, the caller's thread takes the
// results in the order of the files and of the records in them, whatever the threads do.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/inputs.h"
#include "data/part.h"
#include "data/tokenizer.h"

namespace trireme::data {

// A run of consecutive records of one input.
struct TokenizedBatch {
  std::size_t input = 0;  // index into the list of inputs
  std::string tokens;     // token_bytes a piece, each document followed by its end-of-document mark
  std::vector<PartDocument> documents;
  Faults faults;
  std::uint64_t bytes_read = 0;  // of the input, so far
  bool last = false;             // nothing of this input follows
  std::string content_digest;    // of the whole input, with the last batch
};

struct PipelineOptions {
  std::string text_field;
  std::uint64_t max_record_bytes = 0;
  int num_workers = 1;
  int token_bytes = 4;
};

// Ids in the stored width; Error TR4024 for one that is not below the vocabulary.
std::string pack_tokens(const std::vector<std::int32_t>& ids, const Tokenizer& tokenizer, int token_bytes);

// Returns when all inputs are done. An error of a thread, or one that take throws, ends it.
void tokenize_inputs(const std::vector<InputFile>& inputs, const Tokenizer& tokenizer, const PipelineOptions& options,
                     const std::function<void(const TokenizedBatch&)>& take);

}  // namespace trireme::data
