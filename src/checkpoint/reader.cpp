#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/block_digest.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/coverage.h"
#include "checkpoint/element_cast.h"
#include "checkpoint/lineage.h"
#include "checkpoint/safetensors.h"

namespace trireme::checkpoint {
namespace fs = std::filesystem;
namespace {

constexpr const char* kRemedy = "resume from an older checkpoint; this one is damaged";

// Size and digests before the content is looked at.
SafetensorsFile open_file(const fs::path& path, const Manifest::File& expected, bool verify) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    throw Error(5041, path.string(), "a file of the checkpoint is missing", kRemedy);
  }
  const MappedFile map(path);
  if (map.bytes().size() != expected.bytes) {
    throw Error(
        5042, path.string(),
        "has " + std::to_string(map.bytes().size()) + " bytes, the manifest says " + std::to_string(expected.bytes),
        kRemedy);
  }
  if (const auto block = verify ? first_bad_block(map.bytes(), expected.block_digests) : std::nullopt) {
    throw Error(5043, path.string(), "block " + std::to_string(*block) + " (of 1 MiB) is damaged", kRemedy);
  }
  return SafetensorsFile(path);
}

}  // namespace

struct Reader::Impl {
  fs::path folder;
  Manifest manifest;
  std::map<std::string, SafetensorsFile> files;
  std::map<std::string, const LogicalState*> by_name;

  const TensorEntry& stored(const LogicalState& tensor, const Entry& entry) const {
    const auto& tensors = files.at(entry.file).tensors();
    const auto found = tensors.find(entry.stored);
    const auto fail = [&](const std::string& why) {
      throw Error(5044, (folder / entry.file).string(), "tensor " + entry.stored + " " + why, kRemedy);
    };
    if (found == tensors.end()) fail("is missing, the manifest names it for " + tensor.name);
    if (found->second.dtype != tensor.dtype) fail("has another element type than the manifest says");
    const auto numel = static_cast<std::int64_t>(found->second.data.size()) / size_of(tensor.dtype);
    const std::int64_t needed = (entry.row_end - entry.row_begin) * (entry.column_end - entry.column_begin);
    if (needed > numel || entry.flat_begin > numel - needed) fail("is shorter than the manifest says");
    return found->second;
  }
};

Reader::Reader(const fs::path& folder, bool verify) : impl_(std::make_unique<Impl>()) {
  const fs::path path = manifest_path(folder);
  impl_->folder = folder;
  impl_->manifest = parse_manifest(read_file(path), path.string());
  for (const auto& [name, file] : impl_->manifest.files) {
    impl_->files.emplace(name, open_file(folder / name, file, verify));
  }
  for (const LogicalState& tensor : impl_->manifest.tensors) {
    for (const Entry& entry : tensor.entries) impl_->stored(tensor, entry);
    impl_->by_name.emplace(tensor.name, &tensor);
  }
}

Reader::~Reader() = default;

const Manifest& Reader::manifest() const {
  return impl_->manifest;
}

void Reader::read(const std::string& name, const std::vector<std::int64_t>& shape, std::int64_t row_begin,
                  std::int64_t row_end, std::int64_t column_begin, std::int64_t column_end, float* out,
                  std::int64_t out_row_stride) const {
  const auto fail = [&](const std::string& why) {
    throw Error(5040, impl_->folder.string(), "tensor " + name + " " + why,
                "the checkpoint is of another model; check the model block of the configuration");
  };
  const auto found = impl_->by_name.find(name);
  if (found == impl_->by_name.end()) fail("is not in the checkpoint");
  const LogicalState& tensor = *found->second;
  if (tensor.shape != shape) fail("has shape " + shown(tensor.shape) + ", " + shown(shape) + " is needed");
  if (!is_weight_type(tensor.dtype)) fail("is " + std::string(to_string(tensor.dtype)) + ", a type of no weights");
  const Box whole = matrix_of(shape).value();
  TRIREME_CHECK(row_begin >= 0 && row_begin <= row_end && row_end <= whole.row_end && column_begin >= 0 &&
                    column_begin <= column_end && column_end <= whole.column_end,
                "read: the box is outside tensor " + name);
  for (const Entry& entry : tensor.entries) {
    const std::int64_t row_lo = std::max(row_begin, entry.row_begin), row_hi = std::min(row_end, entry.row_end);
    const std::int64_t lo = std::max(column_begin, entry.column_begin), hi = std::min(column_end, entry.column_end);
    if (row_lo >= row_hi || lo >= hi) continue;
    const std::byte* data = impl_->stored(tensor, entry).data.data();
    const std::int64_t entry_columns = entry.column_end - entry.column_begin;
    for (std::int64_t row = row_lo; row < row_hi; ++row) {
      const std::int64_t from = entry.flat_begin + (row - entry.row_begin) * entry_columns + lo - entry.column_begin;
      to_float(tensor.dtype, data + from * size_of(tensor.dtype), hi - lo,
               out + (row - row_begin) * out_row_stride + lo - column_begin);
    }
  }
}

}  // namespace trireme::checkpoint
