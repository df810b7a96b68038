#include "checkpoint/block_digest.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace trireme::checkpoint {

void BlockDigests::add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (!current_) current_.emplace();
    const std::size_t part = std::min(bytes.size(), kBlockBytes - filled_);
    current_->add(bytes.first(part));
    bytes = bytes.subspan(part);
    filled_ += part;
    if (filled_ == kBlockBytes) {
      done_.push_back(current_->hex());
      current_.reset();
      filled_ = 0;
    }
  }
}

std::vector<std::string> BlockDigests::finish() {
  if (current_) done_.push_back(current_->hex());
  current_.reset();
  filled_ = 0;
  return std::exchange(done_, {});
}

std::optional<std::size_t> first_bad_block(std::span<const std::byte> bytes, std::span<const std::string> digests) {
  TRIREME_CHECK(digests.size() == num_blocks(bytes.size()), "one digest a block");
  for (std::size_t block = 0; block < digests.size(); ++block) {
    const std::size_t begin = block * kBlockBytes;
    if (digest(bytes.subspan(begin, std::min(kBlockBytes, bytes.size() - begin))) != digests[block]) return block;
  }
  return std::nullopt;
}

}  // namespace trireme::checkpoint
