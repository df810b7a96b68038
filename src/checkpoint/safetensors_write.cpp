#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/failpoint.h"
#include "checkpoint/block_digest.h"
#include "checkpoint/safetensors.h"

namespace trireme::checkpoint {
namespace {

constexpr std::size_t kAlignment = 64;

std::uint64_t bytes_of(const TensorToWrite& tensor) {
  std::int64_t bytes = size_of(tensor.entry.dtype);
  for (const std::int64_t size : tensor.entry.shape) bytes *= size;
  return static_cast<std::uint64_t>(bytes);
}

void check_size(const TensorToWrite& tensor, std::span<const std::byte> data) {
  TRIREME_CHECK(bytes_of(tensor) == data.size(), tensor.name + ": data has another size");
}

void check(const TensorToWrite& tensor, std::set<std::string>& names) {
  if (!tensor.read) check_size(tensor, tensor.entry.data);
  TRIREME_CHECK(names.insert(tensor.name).second, tensor.name + " is written twice");
}

std::string quoted(const std::string& name) {
  return nlohmann::json(name).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// By hand, for the names keep their order and a file with a hundred thousand tensors stays linear.
std::string header_text(std::span<const TensorToWrite> tensors, const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  if (!metadata.empty()) {
    text += "\"__metadata__\":";
    text += nlohmann::json(metadata).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
  std::set<std::string> names;
  std::uint64_t at = 0;
  for (const TensorToWrite& tensor : tensors) {
    check(tensor, names);
    const std::uint64_t end = at + bytes_of(tensor);
    const nlohmann::json members = {
        {"dtype", safetensors_name(tensor.entry.dtype)}, {"shape", tensor.entry.shape}, {"data_offsets", {at, end}}};
    if (text.size() > 1) text += ",";
    text += quoted(tensor.name) + ":" + members.dump();
    at = end;
  }
  text += "}";
  while ((sizeof(std::uint64_t) + text.size()) % kAlignment != 0) text += ' ';
  return text;
}

}  // namespace

WrittenFile write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                              const std::map<std::string, std::string>& metadata) {
  const std::string header = header_text(tensors, metadata);
  const std::uint64_t length = header.size();
  FileWriter file(path);
  BlockDigests digests;
  const auto write = [&](std::span<const std::byte> bytes) {
    file.write(bytes);
    digests.add(bytes);
  };
  write(std::as_bytes(std::span(&length, 1)));
  write(std::as_bytes(std::span(header)));
  for (const TensorToWrite& tensor : tensors) {
    failpoint("checkpoint.data");
    const std::span<const std::byte> data = tensor.read ? tensor.read() : tensor.entry.data;
    check_size(tensor, data);
    write(data);
  }
  file.finish();
  return {file.size(), digests.finish()};
}

}  // namespace trireme::checkpoint
