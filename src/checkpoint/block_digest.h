// Digests of a stream, one for each block of 1 MiB: corruption is found and located without reading a file twice.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"

namespace trireme::checkpoint {

inline constexpr std::size_t kBlockBytes = 1 << 20;

class BlockDigests {
 public:
  void add(std::span<const std::byte> bytes);
  std::vector<std::string> finish();  // the last block may be short; an empty stream has none

 private:
  std::vector<std::string> done_;
  std::optional<Digest> current_;
  std::size_t filled_ = 0;
};

// The first block of bytes whose digest is another than the one given, or none. The number of digests must fit.
std::optional<std::size_t> first_bad_block(std::span<const std::byte> bytes, std::span<const std::string> digests);

inline std::size_t num_blocks(std::uint64_t bytes) {
  return static_cast<std::size_t>(bytes / kBlockBytes + (bytes % kBlockBytes != 0));
}

}  // namespace trireme::checkpoint
