// The safetensors format: an 8-byte length, a JSON header, raw little-endian data. Hostile input gives an Error, never
// a crash.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "layout/dtype.h"

namespace trireme::checkpoint {

struct TensorEntry {
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;
};

// Reads through a map. Checks that header, offsets and shapes fit the file, no overlap, no gap: Errors TR5020..5029.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);
  const std::map<std::string, TensorEntry>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  MappedFile file_;
  std::map<std::string, TensorEntry> tensors_;
  std::map<std::string, std::string> metadata_;
};

// Writes names in the given order, data aligned to 64 bytes; fsynced, not renamed. Hugging Face's readers load it.
struct TensorToWrite {
  std::string name;
  TensorEntry entry;
};
void write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                       const std::map<std::string, std::string>& metadata);

}  // namespace trireme::checkpoint
