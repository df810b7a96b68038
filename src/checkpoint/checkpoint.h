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
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "layout/dtype.h"

namespace trireme::checkpoint {

inline constexpr int kFormatVersion = 1;

// Part of a logical tensor as it lies in a file: the box (rows, columns of the logical tensor), row by row, is flat
// elements [flat_begin, ...) of tensor `stored` in `file`. A vector is one row; of more than two dimensions all but the
// first are columns.
struct Entry {
  std::string file, stored;
  std::int64_t row_begin = 0, row_end = 0, column_begin = 0, column_end = 0;
  std::int64_t flat_begin = 0;
};

struct LogicalState {
  std::string name;  // "model.norm.weight"; the optimizer's arrays are "exp_avg/NAME", "sum/NAME", ...
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
  std::string optimizer = "adamw";  // whose arrays the tensors are; manifests that do not say it are of adamw
  std::string kernel_level;
  std::string products;  // on devices: how their matrix products were computed, as train/product_ways.h says it
  int world_size = 1;
  double loss_scale = 1;                   // of the step after
  std::int64_t loss_scale_good_steps = 0;  // since the last overflow
  int loss_scale_hysteresis = 0;           // overflows left to the one that halves; 0: the scale is fixed
  std::int64_t good_steps = 0;  // steps that moved the weights: the law's and bias correction's counter; the others of
                                // `step` were skipped
  std::vector<LogicalState> tensors;
  struct File {
    std::uint64_t bytes = 0;
    std::vector<std::string> block_digests;  // of each 1 MiB
  };
  std::map<std::string, File> files;
};

std::string to_json_text(const Manifest& manifest);  // with its own digest

// TR5030 digest, TR5031 version, TR5032 missing, TR5033 type, TR5034 bounds, TR5035 file name that leaves the folder or
// is not listed, TR5036 boxes that overlap or do not cover their tensor, TR5037 tensor that is there twice.
Manifest parse_manifest(const std::string& text, const std::string& place);

// A logical tensor's elements: row-major, contiguous.
struct NamedData {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;
  // In place of data, for what is not in memory yet: called once, in the order of the list; its bytes hold until the
  // next one's.
  std::function<std::span<const std::byte>()> read = {};
};

// Starts an attempt in OUTPUT/checkpoints: takes the number after the highest in use by create_file_exclusive, durable.
// resumed_from: the step, 0 anew. Numbers begin with 1.
int begin_attempt(const std::filesystem::path& checkpoints, const std::string& run_id, std::int64_t resumed_from);

// Writes one checkpoint whole: data file, fsync, then the manifest by link(2). manifest's tensors and files are filled
// in. A step folder without a manifest is cleared first; an existing manifest of the same step and of an attempt that a
// later one replaced (or that cannot be read) is unlinked first, any other is Error TR5010. An attempt that was itself
// replaced is refused (TR5013). On failure (TR5011 disk full, with the bytes needed; TR5012 any other) nothing of it
// remains. Failpoints: checkpoint.data (before each tensor), checkpoint.before_manifest, checkpoint.after_manifest.
// Returns the folder.
std::filesystem::path save(const std::filesystem::path& checkpoints, Manifest manifest,
                           std::span<const NamedData> tensors);

// Steps with a manifest that parses, belongs to an attempt in line (an attempt that resumed from an earlier step
// replaces what earlier ones wrote beyond it), newest first in numeric order. Broken and replaced ones go to
// `rejected`, a line each with the path and the reason; a folder without a manifest is no checkpoint and not told. Data
// files are not looked at: that is Reader's part.
struct Candidate {
  std::int64_t step = 0;
  std::filesystem::path folder;
};
std::vector<Candidate> list(const std::filesystem::path& checkpoints, std::vector<std::string>* rejected = nullptr);

// An opened checkpoint: manifest, sizes and structure of all files verified, with verify also every block's digest.
// TR5041 file missing, TR5042 size, TR5043 damaged block, TR5044 an entry that its file does not hold. Reading from
// several threads is fine.
class Reader {
 public:
  explicit Reader(const std::filesystem::path& folder, bool verify = true);
  ~Reader();
  const Manifest& manifest() const;
  // Copies the box of logical tensor `name`, row by row, to out with a row stride (elements). Error TR5040 names a
  // tensor that is missing, has another shape, or no type of weights.
  void read(const std::string& name, const std::vector<std::int64_t>& shape, std::int64_t row_begin,
            std::int64_t row_end, std::int64_t column_begin, std::int64_t column_end, float* out,
            std::int64_t out_row_stride) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Removes the oldest checkpoints beyond the newest `keep` valid ones (in numeric order), and what was replaced or never
// finished below them; never the newest, never `resumed_from`, nothing that is broken (it may be evidence). keep < 1
// keeps all.
void retain(const std::filesystem::path& checkpoints, int keep, std::optional<std::int64_t> resumed_from);

}  // namespace trireme::checkpoint
