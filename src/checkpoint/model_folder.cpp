#include "checkpoint/model_folder.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "checkpoint/coverage.h"
#include "checkpoint/element_cast.h"

namespace trireme::checkpoint {

namespace fs = std::filesystem;

namespace {

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kConfig = "config.json";
constexpr const char* kFetchAgain = "fetch the folder again, all files of one revision";

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

// A file name and nothing else, so that no index leads out of its folder.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name.size() <= 255 && name.front() != '.' && name.find('/') == std::string::npos &&
         name.find('\\') == std::string::npos && name.find('\0') == std::string::npos && name.ends_with(".safetensors");
}

// Tensor name to file name.
std::map<std::string, std::string> read_index(const fs::path& path) {
  const nlohmann::json index = read_json_object(path, 5062);
  const auto fail = [&](const std::string& why) { throw Error(5062, path.string(), why, kFetchAgain); };
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object() || map->empty()) fail("has no weight_map");
  std::map<std::string, std::string> files;
  for (const auto& [name, file] : map->items()) {
    if (!file.is_string() || !is_plain_name(file.get<std::string>())) {
      fail("weight_map gives " + file.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace).substr(0, 200) +
           " for " + name.substr(0, 200) + ", which is no name of a .safetensors file of this folder");
    }
    files.emplace(name, file.get<std::string>());
  }
  return files;
}

[[noreturn]] void no_weights(const fs::path& folder) {
  for (const char* pickle : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    if (!is_file(folder / pickle)) continue;
    throw Error(5064, folder.string(),
                std::string("has its weights only as ") + pickle + ", a pickle, which is never loaded here",
                "convert it in a process of its own: python3 tools/import_torch.py " + folder.string() + " NEW_FOLDER");
  }
  throw Error(5061, folder.string(), std::string("has neither ") + kSingle + " nor " + kIndex, kFetchAgain);
}

// Buffers that older versions of transformers saved, which follow from the configuration.
bool is_known_buffer(const std::string& name) {
  return name.ends_with(".rotary_emb.inv_freq") ||
         (name.starts_with("transformer.h.") && (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias")));
}

std::string and_more(std::size_t count) {
  return count > 1 ? " (and " + std::to_string(count - 1) + " more)" : "";
}

bool has_same_bytes(const TensorEntry& a, const TensorEntry& b) {
  return a.dtype == b.dtype && a.shape == b.shape && std::memcmp(a.data.data(), b.data.data(), a.data.size()) == 0;
}

fs::path hub_cache() {
  const auto variable = [](const char* name) -> std::optional<fs::path> {
    const char* value = std::getenv(name);
    return value == nullptr || *value == '\0' ? std::nullopt : std::optional<fs::path>(value);
  };
  if (const auto cache = variable("HF_HUB_CACHE")) return *cache;
  if (const auto cache = variable("HUGGINGFACE_HUB_CACHE")) return *cache;
  if (const auto home = variable("HF_HOME")) return *home / "hub";
  const fs::path base = variable("XDG_CACHE_HOME").value_or(variable("HOME").value_or("/") / ".cache");
  return base / "huggingface" / "hub";
}

// "org/name" of the hub's letters; a path with more parts or a dot in front is none.
bool is_hub_name(const std::string& name) {
  const auto is_legal = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
  };
  const std::size_t slash = name.find('/');
  return slash != std::string::npos && slash > 0 && slash + 1 < name.size() && name[0] != '.' &&
         name[slash + 1] != '.' && name.find('/', slash + 1) == std::string::npos &&
         std::all_of(name.begin(), name.end(), [&](char c) { return c == '/' || is_legal(c); });
}

// The snapshot that the cache holds of the main branch, or the only one.
std::optional<fs::path> cached_snapshot(const fs::path& repository) {
  std::error_code error;
  if (is_file(repository / "refs" / "main")) {
    std::string commit = read_file(repository / "refs" / "main");
    commit.erase(std::find_if(commit.begin(), commit.end(), [](char c) { return c == '\n' || c == ' '; }),
                 commit.end());
    const bool is_plain =
        !commit.empty() && commit.size() <= 64 && commit.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (is_plain && fs::is_directory(repository / "snapshots" / commit, error))
      return repository / "snapshots" / commit;
  }
  std::vector<fs::path> snapshots;
  for (fs::directory_iterator at(repository / "snapshots", error), end; !error && at != end; at.increment(error)) {
    snapshots.push_back(at->path());
  }
  return snapshots.size() == 1 ? std::optional(snapshots.front()) : std::nullopt;
}

}  // namespace

fs::path find_model_folder(const std::string& name) {
  std::error_code error;
  if (fs::is_directory(name, error)) return name;
  if (fs::exists(name, error)) {
    throw Error(2250, name, "is a file; a model is a folder with config.json and model.safetensors", "name the folder");
  }
  if (!is_hub_name(name)) {
    throw Error(2250, name, "there is no such folder",
                "give a Hugging Face model folder, or org/name of one in the local cache");
  }
  std::string entry = "models--" + name;
  entry.replace(entry.find('/'), 1, "--");
  const fs::path cache = hub_cache();
  if (const auto snapshot = cached_snapshot(cache / entry)) return *snapshot;
  throw Error(2250, name, "is no folder here, and not in the cache of Hugging Face (" + (cache / entry).string() + ")",
              "download it first: hf download " + name);
}

HuggingFaceConfig read_model_config(const fs::path& folder) {
  const fs::path path = folder / kConfig;
  if (!is_file(path)) throw Error(5061, folder.string(), "has no config.json", "give a Hugging Face model folder");
  std::error_code ignored;
  if (fs::file_size(path, ignored) > (1 << 20))
    throw Error(5060, path.string(), "is larger than any config.json", kFetchAgain);
  return parse_hugging_face_config(read_file(path), path.string());
}

std::vector<std::int32_t> read_end_tokens(const fs::path& folder) {
  for (const char* name : {"generation_config.json", kConfig}) {
    const fs::path path = folder / name;
    if (!is_file(path)) continue;
    const nlohmann::json object = read_json_object(path, 5060);
    const auto given = object.find("eos_token_id");
    if (given == object.end() || given->is_null()) continue;
    const nlohmann::json list = given->is_array() ? *given : nlohmann::json::array({*given});
    std::vector<std::int32_t> ids;
    for (const nlohmann::json& id : list) {
      if (!id.is_number_integer() || id < 0 || id > std::numeric_limits<std::int32_t>::max()) {
        throw Error(5060, path.string(), "eos_token_id is neither a token id nor a list of them", kFetchAgain);
      }
      ids.push_back(id.get<std::int32_t>());
    }
    return ids;
  }
  return {};
}

ModelWeights::ModelWeights(const fs::path& folder, std::span<const ParameterSpec> parameters) {
  open(folder);
  add_base_prefix(parameters);
  check(folder, parameters);
}

void ModelWeights::open(const fs::path& folder) {
  if (is_file(folder / kSingle)) {
    files_.push_back(folder / kSingle);
    maps_.emplace_back(files_.front());
    tensors_ = maps_.front().tensors();
    return;
  }
  if (!is_file(folder / kIndex)) no_weights(folder);
  const std::map<std::string, std::string> index = read_index(folder / kIndex);
  std::set<std::string> names;
  for (const auto& [tensor, file] : index) names.insert(file);
  for (const std::string& name : names) {
    const fs::path path = folder / name;
    if (!is_file(path)) throw Error(5063, path.string(), "is missing, the index names it", kFetchAgain);
    files_.push_back(path);
    const SafetensorsFile& map = maps_.emplace_back(path);
    for (const auto& [tensor, entry] : map.tensors()) {
      const auto listed = index.find(tensor);
      if (listed == index.end() || listed->second != name) {
        throw Error(5063, path.string(), "holds " + tensor.substr(0, 200) + ", which the index does not say",
                    kFetchAgain);
      }
      tensors_.emplace(tensor, entry);
    }
  }
  for (const auto& [tensor, file] : index) {
    if (!tensors_.contains(tensor)) {
      throw Error(5063, (folder / file).string(), "does not hold " + tensor.substr(0, 200) + ", the index says it does",
                  kFetchAgain);
    }
  }
}

// A model without its head was saved under shorter names: "wte.weight" for "transformer.wte.weight".
void ModelWeights::add_base_prefix(std::span<const ParameterSpec> parameters) {
  const std::string& first = parameters.front().logical.front().name;
  const std::string prefix = first.substr(0, first.find('.') + 1);
  const auto has_prefix = [&](const auto& tensor) { return tensor.first.starts_with(prefix); };
  if (std::any_of(tensors_.begin(), tensors_.end(), has_prefix)) return;
  std::map<std::string, TensorEntry> renamed;
  for (auto& [name, entry] : tensors_) renamed.emplace(name == "lm_head.weight" ? name : prefix + name, entry);
  tensors_ = std::move(renamed);
}

void ModelWeights::check(const fs::path& folder, std::span<const ParameterSpec> parameters) const {
  std::set<std::string> needed;
  std::vector<std::string> missing;
  for (const ParameterSpec& parameter : parameters) {
    for (const LogicalTensor& tensor : parameter.logical) {
      needed.insert(tensor.name);
      const auto found = tensors_.find(tensor.name);
      if (found == tensors_.end()) {
        missing.push_back(tensor.name);
        continue;
      }
      if (found->second.shape != tensor.shape) {
        throw Error(5066, folder.string(),
                    "tensor " + tensor.name + " has shape " + shown(found->second.shape) + ", config.json says " +
                        shown(tensor.shape),
                    "config.json and the weights are of different models; " + std::string(kFetchAgain));
      }
      if (!is_weight_type(found->second.dtype)) {
        throw Error(5067, folder.string(),
                    "tensor " + tensor.name + " is " + std::string(to_string(found->second.dtype)) +
                        ", a floating-point type is needed",
                    "quantized weights cannot be trained; take the model in its own precision");
      }
    }
  }
  if (!missing.empty()) {
    throw Error(5065, folder.string(), "tensor " + missing.front() + and_more(missing.size()) + " is missing",
                kFetchAgain);
  }
  std::vector<std::string> extra;
  for (const auto& [name, entry] : tensors_) {
    if (needed.contains(name) || is_known_buffer(name)) continue;
    if (name != "lm_head.weight") {
      extra.push_back(name);
    } else if (!has_same_bytes(entry, tensors_.at(parameters.front().logical.front().name))) {
      throw Error(5069, folder.string(),
                  "holds lm_head.weight beside an embedding that differs from it, but config.json ties them",
                  "set tie_word_embeddings to false in config.json to train both, or remove lm_head.weight");
    }
  }
  if (!extra.empty()) {
    throw Error(5068, folder.string(),
                "tensor " + extra.front().substr(0, 200) + and_more(extra.size()) + " belongs to no such model",
                "is config.json of another model? adapters must be merged first");
  }
}

void ModelWeights::read(const std::string& name, const Box& box, float* out, std::int64_t out_row_stride) const {
  const auto found = tensors_.find(name);
  TRIREME_CHECK(found != tensors_.end(), "no tensor " + name);
  const TensorEntry& entry = found->second;
  const Box whole = matrix_of(entry.shape).value();
  TRIREME_CHECK(box.row_begin >= 0 && box.row_begin <= box.row_end && box.row_end <= whole.row_end &&
                    box.column_begin >= 0 && box.column_begin <= box.column_end && box.column_end <= whole.column_end,
                "read: the box is outside tensor " + name);
  for (std::int64_t row = box.row_begin; row < box.row_end; ++row) {
    const std::int64_t at = (row * whole.column_end + box.column_begin) * size_of(entry.dtype);
    to_float(entry.dtype, entry.data.data() + at, box.columns(), out + (row - box.row_begin) * out_row_stride);
  }
}

std::uint64_t ModelWeights::bytes() const {
  std::uint64_t sum = 0;
  for (const auto& [name, entry] : tensors_) sum += entry.data.size();
  return sum;
}

DType ModelWeights::dtype() const {
  std::map<DType, std::size_t> counts;
  for (const auto& [name, entry] : tensors_)
    counts[entry.dtype] += entry.data.size() / static_cast<std::size_t>(size_of(entry.dtype));
  return std::max_element(counts.begin(), counts.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

}  // namespace trireme::checkpoint
