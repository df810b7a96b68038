// Writes a model folder that Hugging Face's transformers loads.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "layout/dtype.h"
#include "layout/parameter.h"

namespace trireme::checkpoint {

// Names of the files of a folder that belong to a model beside config.json and weights: tokenizer, chat template,
// generation_config.json, licence.
std::vector<std::string> companion_files(const std::filesystem::path& folder);

// The text of a config.json with the element type replaced, all else as it was.
std::string with_dtype(const std::string& config_json, DType dtype, const std::string& place);

struct ModelExport {
  std::string config_json;
  std::span<const ParameterSpec> parameters;
  // All elements of a logical tensor, row by row.
  std::function<void(const LogicalTensor& tensor, float* out)> read;
  std::vector<std::filesystem::path> companions;  // files that are copied
  DType dtype = DType::f32;                       // fp32, bf16 or fp16
  std::uint64_t max_shard_bytes = 5'000'000'000;  // of tensors in a file; one tensor may be larger. In memory at once.
};

struct ExportedModel {
  std::uint64_t bytes = 0;  // of tensors
  int files = 0;            // of weights
};

// Writes model.safetensors, or its shards with their index, config.json and the companions into a folder beside
// `output`, which then takes its name: whole or absent. TR2262 where output exists and is no empty folder. On failure
// nothing of it remains.
ExportedModel export_model(const std::filesystem::path& output, const ModelExport& model);

}  // namespace trireme::checkpoint
