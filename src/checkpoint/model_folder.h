// A model folder as Hugging Face's tools write it: config.json, model.safetensors or its shards, tokenizer files.
// Nothing is executed or unpickled; what the folder says is not trusted.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "layout/parameter.h"
#include "models/hugging_face_config.h"

namespace trireme::checkpoint {

// The folder that `name` means: a path, or "org/name" in Hugging Face's local cache (HF_HUB_CACHE, HF_HOME/hub,
// XDG_CACHE_HOME/huggingface/hub, ~/.cache/huggingface/hub). TR2250 where there is none, with the command that
// downloads it. Nothing is downloaded here.
std::filesystem::path find_model_folder(const std::string& name);

// TR5061 no config.json; otherwise as parse_hugging_face_config().
HuggingFaceConfig read_model_config(const std::filesystem::path& folder);

// The eos_token_id (one or several) of generation_config.json, else of config.json; none where neither names any.
// TR5060 where it is no id.
std::vector<std::int32_t> read_end_tokens(const std::filesystem::path& folder);

// The weights of a folder, checked against what the model needs. Reading from several threads is fine.
class ModelWeights {
 public:
  // TR5061 no weights; TR5062 a broken index; TR5063 a shard is missing, or is not what the index says; TR5064 weights
  // only as a pickle, with the command that converts them; TR5020 .. TR5026 broken safetensors; TR5065 a tensor is
  // missing; TR5066 has another shape; TR5067 is no floating-point number; TR5068 belongs to no such model; TR5069 the
  // output projection, which is the embedding in this model, is stored too and differs.
  ModelWeights(const std::filesystem::path& folder, std::span<const ParameterSpec> parameters);

  // As Reader::read(), from any floating-point type.
  void read(const std::string& name, const Box& box, float* out, std::int64_t out_row_stride) const;

  const std::vector<std::filesystem::path>& files() const { return files_; }
  std::uint64_t bytes() const;  // of all tensors
  DType dtype() const;          // the type that most of them have

 private:
  void open(const std::filesystem::path& folder);
  void add_base_prefix(std::span<const ParameterSpec> parameters);
  void check(const std::filesystem::path& folder, std::span<const ParameterSpec> parameters) const;

  std::vector<std::filesystem::path> files_;
  std::vector<SafetensorsFile> maps_;
  std::map<std::string, TensorEntry> tensors_;
};

}  // namespace trireme::checkpoint
