// Token shards as one long stream a split, cut into samples; and the global order in which a run takes them.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "chain/unit.h"

namespace trireme::data {

struct DatasetOptions {
  std::int64_t sequence_length = 0;  // T
  bool document_borders = false;     // positions and starts begin anew at borders; the label across one counts nothing
};

// One sample's four rows of T, in a caller's memory.
struct SampleRows {
  std::int32_t* ids;
  std::int32_t* labels;
  std::int32_t* positions;
  std::int32_t* starts;
};

// Packed: sample i is tokens [i*T, i*T + T], T inputs and T labels; the last T labels may be fewer: ignored (-1), ids
// padded with the end-of-document id. Immutable after opening and thread-safe. Shard digests are checked on first touch
// (TR4030 names the shard).
class Dataset {
 public:
  // folder: what prepare() wrote. split: "train" or "heldout". Errors TR40xx.
  Dataset(const std::filesystem::path& folder, const std::string& split, const DatasetOptions& options);
  ~Dataset();
  std::uint64_t num_samples() const;
  std::uint64_t num_tokens() const;
  std::uint64_t num_bytes() const;  // of text, without end-of-document marks
  std::int64_t vocabulary() const;
  const std::string& digest() const;  // of the manifest
  const std::string& tokenizer_digest() const;
  std::filesystem::path tokenizer_folder() const;  // prepare() keeps the tokenizer beside the shards
  void read(std::uint64_t sample, const SampleRows& rows) const;
  // The tokens themselves, for `data show` and baselines.
  std::vector<std::int32_t> tokens(std::uint64_t begin, std::uint64_t end) const;

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
