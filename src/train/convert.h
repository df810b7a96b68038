// Model folders from runs and from other model folders.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "layout/dtype.h"

namespace trireme::train {

struct ConvertOptions {
  std::string source;  // a run's output_dir, one checkpoint's folder, a Hugging Face folder, or org/name of one
  std::filesystem::path output;  // must not exist
  std::optional<DType> dtype;    // unset: the source's; a checkpoint's is fp32
  std::uint64_t max_shard_bytes = 5'000'000'000;
};

struct Converted {
  std::string source;  // what was read, for a person
  std::int64_t num_parameters = 0;
  std::uint64_t bytes = 0;
  int files = 0;
  DType dtype = DType::f32;
  bool has_tokenizer = false;
};

// Writes a folder that transformers loads (checkpoint::export_model): all tensors, config.json, tokenizer files.
Converted convert(const ConvertOptions& options);

}  // namespace trireme::train
