// Checkpoints: a folder with data files, and manifest.json last. No manifest, no checkpoint.
//
//   OUTPUT/checkpoints/step-00000010/{state-aA-rankR.safetensors, manifest.json}
//   OUTPUT/checkpoints/attempts/A.json   one for each start of the job in that folder: the step it resumed from
//
// Every data file has a digest for each 1 MiB block, manifests and attempt files one of their own; all are checked on
// load.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "layout/dtype.h"

namespace trireme::checkpoint {

inline constexpr int kFormatVersion = 1;

// Part of a logical tensor as it lies in a file: the box (rows, columns of the logical tensor) is flat elements
// [flat_begin, ...) of tensor `stored` in `file`.
struct Entry {
  std::string file, stored;
  std::int64_t row_begin = 0, row_end = 0, column_begin = 0, column_end = 0;
  std::int64_t flat_begin = 0;
};

struct LogicalState {
  std::string name;  // "model.norm.weight"; moments are "exp_avg/NAME" and "exp_avg_sq/NAME"
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::vector<Entry> entries;
};

struct Manifest {
  int format_version = kFormatVersion;
  std::string run_id;  // random, of the first attempt
  int attempt = 0;
  std::int64_t step = 0;    // completed steps
  std::string plan_digest;  // config::numeric_digest
  std::string plan_yaml;
  std::string data_digest, tokenizer_digest;
  std::uint64_t data_position = 0;     // the next position of the global order
  std::int64_t num_micro_batches = 0;  // M: wins on resume
  std::int64_t micro_batch_size = 0;
  int compute_threads = 1;
  std::string kernel_level;
  int world_size = 1;
  double loss_scale = 1;
  std::int64_t good_steps = 0;  // steps that moved the weights: the law's and bias correction's counter
  std::vector<LogicalState> tensors;
  struct File {
    std::uint64_t bytes = 0;
    std::vector<std::string> block_digests;  // of each 1 MiB
  };
  std::map<std::string, File> files;
};

std::string to_json_text(const Manifest& manifest);  // with its own digest
Manifest parse_manifest(const std::string& text,
                        const std::string& place);  // Errors TR503x: digest, version, missing, types, bounds

// A logical tensor's elements in memory: row-major, contiguous.
struct NamedData {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;
};

// Starts an attempt in OUTPUT/checkpoints: takes the lowest free number by create_file_exclusive, durable.
// resumed_from: the step, 0 anew.
int begin_attempt(const std::filesystem::path& checkpoints, const std::string& run_id, std::int64_t resumed_from);

// Writes one checkpoint whole: data file, fsync, then the manifest by link(2). manifest's tensors and files are filled
// in. A step folder without a manifest is cleared first; an existing manifest of the same step and of an attempt that a
// later one replaced is unlinked first, one of this attempt is Error TR5010. On failure (TR5011, disk full with the
// bytes needed) nothing of it remains. Returns the folder.
std::filesystem::path save(const std::filesystem::path& checkpoints, Manifest manifest,
                           std::span<const NamedData> tensors);

// Steps with a manifest that parses, belongs to an attempt in line (an attempt that resumed from an earlier step
// replaces what others wrote beyond it), newest first. Names of broken ones go to `rejected` with the reason.
struct Candidate {
  std::int64_t step = 0;
  std::filesystem::path folder;
};
std::vector<Candidate> list(const std::filesystem::path& checkpoints, std::vector<std::string>* rejected = nullptr);

// An opened checkpoint: manifest and files verified (all block digests) when verify is set.
class Reader {
 public:
  explicit Reader(const std::filesystem::path& folder, bool verify = true);
  ~Reader();
  const Manifest& manifest() const;
  // Copies flat rows of the box of logical tensor `name` into out with a row stride (elements); dtype must be the
  // stored one. Error TR5040 names a tensor that is missing or has another shape.
  void read(const std::string& name, const std::vector<std::int64_t>& shape, std::int64_t row_begin,
            std::int64_t row_end, std::int64_t column_begin, std::int64_t column_end, float* out,
            std::int64_t out_row_stride) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Removes the oldest checkpoints beyond the newest `keep` valid ones; never the newest, never `resumed_from`. Numeric
// order.
void retain(const std::filesystem::path& checkpoints, int keep, std::optional<std::int64_t> resumed_from);

}  // namespace trireme::checkpoint
