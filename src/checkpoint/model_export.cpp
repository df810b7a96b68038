#include "checkpoint/model_export.h"

#include <fmt/core.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "checkpoint/element_cast.h"
#include "checkpoint/safetensors.h"

namespace trireme::checkpoint {

namespace fs = std::filesystem;

namespace {

constexpr const char* kCompanions[] = {
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
    "LICENSE",
    "LICENSE.txt",
};

// Removes what was written unless it was kept.
class TemporaryOutput {
 public:
  explicit TemporaryOutput(const fs::path& output)
      : path_(output.parent_path() / ("." + output.filename().string() + ".tmp-" + std::to_string(::getpid()))) {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
    std::error_code error;
    fs::create_directories(path_, error);
    if (error) {
      throw Error(kWriteFailed, path_.string(), "cannot be created: " + error.message(),
                  "check the path and its rights");
    }
  }
  TemporaryOutput(const TemporaryOutput&) = delete;
  TemporaryOutput& operator=(const TemporaryOutput&) = delete;
  ~TemporaryOutput() {
    std::error_code ignored;
    if (!kept_) fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }
  void keep_as(const fs::path& output) {
    fsync_directory(path_);
    std::error_code error;
    fs::rename(path_, output, error);  // over an empty folder, too
    if (error) throw Error(kWriteFailed, output.string(), "cannot be created: " + error.message(), "");
    kept_ = true;
    fsync_directory(output.parent_path());
  }

 private:
  fs::path path_;
  bool kept_ = false;
};

using Shard = std::vector<const LogicalTensor*>;

std::uint64_t bytes_of(const LogicalTensor& tensor, DType dtype) {
  return static_cast<std::uint64_t>(tensor.box.numel() * size_of(dtype));
}

std::vector<Shard> cut(const ModelExport& model) {
  std::vector<Shard> shards(1);
  std::uint64_t bytes = 0;
  for (const ParameterSpec& parameter : model.parameters) {
    for (const LogicalTensor& tensor : parameter.logical) {
      const std::uint64_t more = bytes_of(tensor, model.dtype);
      if (bytes > 0 && bytes + more > model.max_shard_bytes) {
        shards.emplace_back();
        bytes = 0;
      }
      shards.back().push_back(&tensor);
      bytes += more;
    }
  }
  return shards;
}

void write_shard(const fs::path& path, const Shard& shard, const ModelExport& model) {
  std::vector<std::vector<std::byte>> data;
  std::vector<TensorToWrite> tensors;
  std::vector<float> elements;
  for (const LogicalTensor* tensor : shard) {
    elements.resize(static_cast<std::size_t>(tensor->box.numel()));
    model.read(*tensor, elements.data());
    std::vector<std::byte>& bytes = data.emplace_back(bytes_of(*tensor, model.dtype));
    from_float(model.dtype, elements.data(), tensor->box.numel(), bytes.data());
    tensors.push_back({tensor->name, {model.dtype, tensor->shape, bytes}});
  }
  write_safetensors(path, tensors, {{"format", "pt"}});
}

// How transformers names shards.
std::string shard_name(std::size_t index, std::size_t count) {
  return count == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", index + 1, count);
}

std::string index_text(const std::vector<Shard>& shards, DType dtype) {
  nlohmann::ordered_json map;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    for (const LogicalTensor* tensor : shards[i]) {
      map[tensor->name] = shard_name(i, shards.size());
      bytes += bytes_of(*tensor, dtype);
    }
  }
  const nlohmann::ordered_json index{{"metadata", {{"total_size", bytes}}}, {"weight_map", map}};
  return index.dump(2) + "\n";
}

}  // namespace

std::vector<std::string> companion_files(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const char* name : kCompanions) {
    if (fs::is_regular_file(folder / name, ignored)) names.emplace_back(name);
  }
  return names;
}

std::string with_dtype(const std::string& config_json, DType dtype, const std::string& place) {
  parse_json_object(config_json, place, 5060);  // with its checks
  nlohmann::ordered_json config = nlohmann::ordered_json::parse(config_json);
  config[config.contains("dtype") ? "dtype" : "torch_dtype"] = to_string(dtype);
  return config.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

ExportedModel export_model(const fs::path& output, const ModelExport& model) {
  fs::path target = fs::absolute(output).lexically_normal();
  if (!target.has_filename()) target = target.parent_path();
  std::error_code ignored;
  if (fs::exists(target, ignored) && !(fs::is_directory(target, ignored) && fs::is_empty(target, ignored))) {
    throw Error(2262, output.string(), "exists already", "name a new folder: nothing is ever overwritten");
  }
  TemporaryOutput folder(target);
  const std::vector<Shard> shards = cut(model);
  ExportedModel result{.bytes = 0, .files = static_cast<int>(shards.size())};
  for (std::size_t i = 0; i < shards.size(); ++i) {
    write_shard(folder.path() / shard_name(i, shards.size()), shards[i], model);
    for (const LogicalTensor* tensor : shards[i]) result.bytes += bytes_of(*tensor, model.dtype);
  }
  if (shards.size() > 1) {
    write_file_atomic(folder.path() / "model.safetensors.index.json", index_text(shards, model.dtype));
  }
  for (const fs::path& file : model.companions) write_file_atomic(folder.path() / file.filename(), read_file(file));
  write_file_atomic(folder.path() / "config.json", model.config_json);
  folder.keep_as(target);
  return result;
}

}  // namespace trireme::checkpoint
