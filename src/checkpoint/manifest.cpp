#include <algorithm>
#include <limits>

#include "base/error.h"
#include "checkpoint/block_digest.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/coverage.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/signed_json.h"

namespace trireme::checkpoint {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::int64_t kMaxInt = std::numeric_limits<int>::max();
constexpr std::int64_t kMaxCount = std::numeric_limits<std::int64_t>::max();

ordered_json to_json(const LogicalState& tensor) {
  ordered_json entries = ordered_json::array();
  for (const Entry& entry : tensor.entries) {
    entries.push_back({{"file", entry.file},
                       {"stored", entry.stored},
                       {"rows", {entry.row_begin, entry.row_end}},
                       {"columns", {entry.column_begin, entry.column_end}},
                       {"flat_begin", entry.flat_begin}});
  }
  return {{"name", tensor.name},
          {"dtype", safetensors_name(tensor.dtype)},
          {"shape", tensor.shape},
          {"entries", std::move(entries)}};
}

// A name that stays inside the checkpoint's folder and means the same on every system.
bool is_plain_file_name(const std::string& name) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  };
  return !name.empty() && name.size() <= 255 && name[0] != '.' && std::all_of(name.begin(), name.end(), plain);
}

std::map<std::string, Manifest::File> parse_files(const json& object, const std::string& place) {
  std::map<std::string, Manifest::File> files;
  for (const auto& [name, value] : object.items()) {
    const Fields fields(value, place, "files." + name.substr(0, 255));
    if (!is_plain_file_name(name)) fields.fail(5035, "is no plain file name");
    Manifest::File file;
    file.bytes = static_cast<std::uint64_t>(fields.count("bytes"));
    file.block_digests = fields.texts("block_digests");
    if (file.block_digests.size() != num_blocks(file.bytes)) {
      fields.fail(5034, "has " + std::to_string(file.block_digests.size()) + " block digests, " +
                            std::to_string(file.bytes) + " bytes need " + std::to_string(num_blocks(file.bytes)));
    }
    files.emplace(name, std::move(file));
  }
  return files;
}

std::pair<std::int64_t, std::int64_t> parse_range(const Fields& fields, const char* key) {
  const std::vector<std::int64_t> ends = fields.counts(key, 2);
  if (ends.size() != 2) fields.fail(5033, std::string(key) + " must hold a begin and an end");
  return {ends[0], ends[1]};
}

Entry parse_entry(const Fields& fields, const std::map<std::string, Manifest::File>& files) {
  Entry entry;
  entry.file = fields.text("file");
  if (!is_plain_file_name(entry.file)) fields.fail(5035, "file is no plain file name");
  if (!files.contains(entry.file)) fields.fail(5035, "file " + entry.file + " is not among the files");
  entry.stored = fields.text("stored");
  std::tie(entry.row_begin, entry.row_end) = parse_range(fields, "rows");
  std::tie(entry.column_begin, entry.column_end) = parse_range(fields, "columns");
  entry.flat_begin = fields.count("flat_begin");
  return entry;
}

DType parse_dtype(const Fields& fields) {
  try {
    return dtype_from_safetensors(fields.text("dtype"));
  } catch (const Error& error) {
    if (error.code() != 5020) throw;
    fields.fail(5033, error.message());
  }
}

LogicalState parse_tensor(const json& value, const std::string& place, const std::string& where,
                          const std::map<std::string, Manifest::File>& files) {
  const Fields fields(value, place, where);
  LogicalState tensor;
  tensor.name = fields.text("name");
  tensor.dtype = parse_dtype(fields);
  tensor.shape = fields.counts("shape", kMaxDimensions);
  const std::optional<Box> whole = matrix_of(tensor.shape);
  if (!whole) fields.fail(5034, "the shape is too large");
  std::vector<Box> boxes;
  for (const json& one : fields.array("entries")) {
    const Fields entry_fields(one, place, where + ".entries[" + std::to_string(tensor.entries.size()) + "]");
    const Entry entry = parse_entry(entry_fields, files);
    const Box box{entry.row_begin, entry.row_end, entry.column_begin, entry.column_end};
    boxes.push_back(box);
    tensor.entries.push_back(entry);
  }
  if (const auto problem = coverage_problem(std::move(boxes), *whole)) fields.fail(5036, tensor.name + ": " + *problem);
  for (const Entry& entry : tensor.entries) {
    const std::int64_t numel = (entry.row_end - entry.row_begin) * (entry.column_end - entry.column_begin);
    const auto room = static_cast<std::int64_t>(files.at(entry.file).bytes) / size_of(tensor.dtype);
    if (numel > room || entry.flat_begin > room - numel) fields.fail(5034, "flat_begin is beyond the end of the file");
  }
  return tensor;
}

void check_names(const std::vector<LogicalState>& tensors, const Fields& fields) {
  std::vector<std::string_view> names;
  for (const LogicalState& tensor : tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) fields.fail(5037, "tensor " + std::string(*twice) + " is there twice");
}

}  // namespace

std::string to_json_text(const Manifest& manifest) {
  ordered_json record = {{"format_version", manifest.format_version},
                         {"run_id", manifest.run_id},
                         {"attempt", manifest.attempt},
                         {"step", manifest.step},
                         {"plan_digest", manifest.plan_digest},
                         {"plan_yaml", manifest.plan_yaml},
                         {"data_digest", manifest.data_digest},
                         {"tokenizer_digest", manifest.tokenizer_digest},
                         {"data_position", manifest.data_position},
                         {"num_micro_batches", manifest.num_micro_batches},
                         {"micro_batch_size", manifest.micro_batch_size},
                         {"compute_threads", manifest.compute_threads},
                         {"optimizer", manifest.optimizer},
                         {"kernel_level", manifest.kernel_level},
                         {"world_size", manifest.world_size},
                         {"loss_scale", manifest.loss_scale},
                         {"loss_scale_good_steps", manifest.loss_scale_good_steps},
                         {"loss_scale_hysteresis", manifest.loss_scale_hysteresis},
                         {"good_steps", manifest.good_steps}};
  if (!manifest.products.empty()) record["products"] = manifest.products;
  ordered_json tensors = ordered_json::array();
  for (const LogicalState& tensor : manifest.tensors) tensors.push_back(to_json(tensor));
  record["tensors"] = std::move(tensors);
  ordered_json files = ordered_json::object();
  for (const auto& [name, file] : manifest.files) {
    files[name] = {{"bytes", file.bytes}, {"block_digests", file.block_digests}};
  }
  record["files"] = std::move(files);
  return sign(record);
}

Manifest parse_manifest(const std::string& text, const std::string& place) {
  const json record = open_signed(text, place);
  const Fields fields(record, place, "");
  Manifest manifest;
  manifest.format_version = static_cast<int>(fields.integer("format_version", 0, kMaxInt));
  if (manifest.format_version != kFormatVersion) {
    throw Error(5031, place,
                "has format version " + std::to_string(manifest.format_version) + ", this program reads " +
                    std::to_string(kFormatVersion),
                "use the version of Trireme that wrote it, or a newer one");
  }
  manifest.run_id = fields.text("run_id");
  manifest.attempt = static_cast<int>(fields.integer("attempt", 0, kMaxInt));
  manifest.step = fields.count("step");
  manifest.plan_digest = fields.text("plan_digest");
  manifest.plan_yaml = fields.text("plan_yaml");
  manifest.data_digest = fields.text("data_digest");
  manifest.tokenizer_digest = fields.text("tokenizer_digest");
  manifest.data_position = fields.unsigned_integer("data_position");
  manifest.num_micro_batches = fields.integer("num_micro_batches", 1, kMaxCount);
  manifest.micro_batch_size = fields.integer("micro_batch_size", 1, kMaxCount);
  manifest.compute_threads = static_cast<int>(fields.integer("compute_threads", 1, kMaxInt));
  if (record.contains("optimizer")) manifest.optimizer = fields.text("optimizer");
  manifest.kernel_level = fields.text("kernel_level");
  if (record.contains("products")) manifest.products = fields.text("products");
  manifest.world_size = static_cast<int>(fields.integer("world_size", 1, kMaxInt));
  manifest.loss_scale = fields.number("loss_scale");
  if (record.contains("loss_scale_hysteresis")) {
    manifest.loss_scale_good_steps = fields.count("loss_scale_good_steps");
    manifest.loss_scale_hysteresis = static_cast<int>(fields.integer("loss_scale_hysteresis", 0, kMaxInt));
    if (manifest.loss_scale <= 0) fields.fail(5034, "loss_scale must be above 0");
  }
  manifest.good_steps = fields.integer("good_steps", 0, manifest.step);
  manifest.files = parse_files(fields.object("files"), place);
  for (const json& tensor : fields.array("tensors")) {
    const std::string where = "tensors[" + std::to_string(manifest.tensors.size()) + "]";
    manifest.tensors.push_back(parse_tensor(tensor, place, where, manifest.files));
  }
  check_names(manifest.tensors, fields);
  return manifest;
}

}  // namespace trireme::checkpoint
