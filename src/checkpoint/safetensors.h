// The safetensors format: an 8-byte length, a JSON header, raw little-endian data. Hostile input gives an Error, never
// a crash.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "layout/dtype.h"

namespace trireme::checkpoint {

inline constexpr std::size_t kMaxDimensions = 16;  // of a tensor

// "[2, 3]"
std::string shown(const std::vector<std::int64_t>& shape);

struct TensorEntry {
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;
};

// Reads through a map. Checks that header, offsets and shapes fit the file, no overlap, no gap: TR5020 unknown element
// type, TR5021 length of the header, TR5022 no JSON, TR5023 another structure, TR5024 shape or offsets do not fit,
// TR5025 overlap or gap, TR5026 a name that is there twice.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);
  const std::map<std::string, TensorEntry>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  std::span<const std::byte> bytes() const { return file_.bytes(); }  // the whole file

 private:
  MappedFile file_;
  std::map<std::string, TensorEntry> tensors_;
  std::map<std::string, std::string> metadata_;
};

struct TensorToWrite {
  std::string name;
  TensorEntry entry;
  // In place of entry.data: called once, when the tensor's turn comes; its bytes hold until the next one's.
  std::function<std::span<const std::byte>()> read;
};

struct WrittenFile {
  std::uint64_t bytes = 0;
  std::vector<std::string> block_digests;  // of each 1 MiB, computed while writing
};

// Writes names in the given order, the data section aligned to 64 bytes (the format allows no gap between tensors);
// fsynced, not renamed; path must not exist, and on failure nothing of it remains. Hugging Face's readers load it.
WrittenFile write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                              const std::map<std::string, std::string>& metadata);

}  // namespace trireme::checkpoint
