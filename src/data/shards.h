// The files of a split, written front to back.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "base/file.h"
#include "base/hash.h"
#include "data/manifest.h"

namespace trireme::data {

class SplitWriter {
 public:
  // Shards of shard_tokens tokens, but for the last. The folder must not hold files of the split.
  SplitWriter(std::filesystem::path folder, std::string split, int token_bytes, std::uint64_t shard_tokens);
  SplitWriter(const SplitWriter&) = delete;
  SplitWriter& operator=(const SplitWriter&) = delete;

  // One document, with its end-of-document mark; text_bytes without.
  void add_document(std::span<const std::byte> tokens, std::uint64_t text_bytes);
  // All files are durable afterwards, once their folder is flushed.
  SplitEntry finish();

 private:
  void close_shard();

  std::filesystem::path folder_;
  std::string split_;
  std::uint64_t token_bytes_, shard_tokens_;
  SplitEntry entry_;
  std::unique_ptr<FileWriter> shard_;
  std::unique_ptr<Digest> shard_digest_;
  std::uint64_t tokens_in_shard_ = 0;
  FileWriter ends_;
  Digest ends_digest_;
};

// Removes the files of both splits, and drafts of a manifest that a killed process left.
void remove_split_files(const std::filesystem::path& folder);

}  // namespace trireme::data
