#include "data/shards.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/failpoint.h"

namespace trireme::data {

namespace fs = std::filesystem;

SplitWriter::SplitWriter(fs::path folder, std::string split, int token_bytes, std::uint64_t shard_tokens)
    : folder_(std::move(folder)),
      split_(std::move(split)),
      token_bytes_(static_cast<std::uint64_t>(token_bytes)),
      shard_tokens_(shard_tokens),
      ends_(folder_ / documents_name(split_)) {}

void SplitWriter::add_document(std::span<const std::byte> tokens, std::uint64_t text_bytes) {
  while (!tokens.empty()) {
    if (!shard_) {
      shard_ = std::make_unique<FileWriter>(folder_ / shard_name(split_, entry_.shards.size()));
      shard_digest_ = std::make_unique<Digest>();
      tokens_in_shard_ = 0;
    }
    const std::uint64_t count = std::min(tokens.size() / token_bytes_, shard_tokens_ - tokens_in_shard_);
    const std::span<const std::byte> piece = tokens.first(count * token_bytes_);
    shard_->write(piece);
    shard_digest_->add(piece);
    tokens_in_shard_ += count;
    entry_.tokens += count;
    tokens = tokens.subspan(piece.size());
    if (tokens_in_shard_ == shard_tokens_) close_shard();
  }
  const std::span<const std::uint64_t> end(&entry_.tokens, 1);
  ends_.write(std::as_bytes(end));
  ends_digest_.add(std::as_bytes(end));
  ++entry_.documents;
  entry_.bytes += text_bytes;
}

void SplitWriter::close_shard() {
  shard_->finish();
  shard_.reset();
  entry_.shards.push_back({tokens_in_shard_, shard_digest_->hex()});
  failpoint("data.prepare.shard");
}

SplitEntry SplitWriter::finish() {
  if (shard_) close_shard();
  ends_.finish();
  entry_.documents_digest = ends_digest_.hex();
  return std::move(entry_);
}

void remove_split_files(const fs::path& folder) {
  std::vector<fs::path> ours;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool of_split = name.starts_with("train") || name.starts_with("heldout");
    const bool shard = of_split && (name.ends_with(".tokens") || name.ends_with(".documents"));
    if (shard || name.starts_with(std::string(kManifestName) + ".tmp-")) ours.push_back(entry.path());
  }
  for (const fs::path& path : ours) fs::remove(path);
}

}  // namespace trireme::data
