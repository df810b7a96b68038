// Token shards as one long stream a split, cut into samples; and the global order in which a run takes them.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "chain/unit.h"

namespace trireme::data {

enum class Packing : std::uint8_t { packed, padded };

struct DatasetOptions {
  std::int64_t sequence_length = 0;  // T
  bool document_borders = false;     // packed: positions and starts begin anew at borders; the label across one counts
                                     // nothing
  Packing packing = Packing::packed;
  std::uint64_t max_samples = 0;          // only the first so many; 0: all
  bool end_marks = true;                  // padded: a document's end-of-document mark is part of its sample
  std::vector<std::int32_t> prefix;       // padded: what stands before each document (begin-of-text)
  std::optional<std::int32_t> pad_token;  // padded; none: the end-of-document id
};

// One sample's four rows of T, in a caller's memory.
struct SampleRows {
  std::int32_t* ids;
  std::int32_t* labels;
  std::int32_t* positions;
  std::int32_t* starts;
};

// Of all documents of a split, or of the part of them that a slice names (split.h), which is then the whole of what
// follows.
//
// Packed: sample i is tokens [i*T, i*T + T), T inputs and T labels; the last T labels may be fewer: ignored (-1), ids
// padded with the end-of-document id. So N tokens have ceil((N - 1) / T) samples, and each token but the first is the
// label of exactly one place. A position counts from the row's start, or with document_borders from the document's
// first token in the row.
//
// Padded: sample i is the prefix and document i, cut after T tokens; the label of a token is the one behind it in the
// sample. What is left of the row is padding: the pad token without a label, which sees itself alone and is seen by no
// token.
//
// All files are mapped when it opens, so that a later prepare() into the same folder does not disturb it. Immutable
// after opening and thread-safe. Shard digests and ids are checked on first touch (TR4030 names the shard).
class Dataset {
 public:
  // folder: what prepare() wrote. split: "train", "heldout" or a slice of one. Errors: TR4022 the split is shorter than
  // a sample, TR4023 nothing in the split, TR4025 no such split, TR4026 a token to pad with or to begin with is no
  // id of the data, TR4030 .. TR4033 files
  // that are missing, cut, swapped or not ours.
  Dataset(const std::filesystem::path& folder, const std::string& split, const DatasetOptions& options);
  ~Dataset();
  std::uint64_t num_samples() const;
  std::uint64_t num_tokens() const;
  std::uint64_t num_bytes() const;  // of text, without end-of-document marks; 0 where the samples are not all of it
  std::int64_t vocabulary() const;
  const DatasetOptions& options() const;
  std::int64_t sequence_length() const;  // T
  std::uint64_t num_cut() const;         // padded: samples whose document is longer than T
  // Of the manifest and of which samples there are: equal for equal data, wherever it and its inputs lie.
  const std::string& digest() const;
  const std::string& tokenizer_digest() const;
  const std::string& text_field() const;           // of the JSONL records that were prepared
  std::filesystem::path tokenizer_folder() const;  // prepare() keeps the tokenizer beside the shards
  void read(std::uint64_t sample, const SampleRows& rows) const;
  // The tokens themselves, for `data show` and baselines.
  std::vector<std::int32_t> tokens(std::uint64_t begin, std::uint64_t end) const;
  std::uint64_t num_documents() const;
  std::uint64_t document_end(std::uint64_t document) const;  // its end-of-document mark is the token before

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The run's order: position p (0, 1, ... over all epochs) is a sample of epoch p / n, at a place that is a pure
// function of (seed, epoch, p % n): each sample once an epoch. shuffle = false keeps the order of the file
// (evaluation).
struct SampleOrder {
  std::uint64_t seed = 0;
  std::uint64_t num_samples = 0;
  bool shuffle = true;
  std::uint64_t sample(std::uint64_t position) const;
  std::uint64_t epoch(std::uint64_t position) const { return position / num_samples; }
};

}  // namespace trireme::data
