// Prepared data made up document by document, and the rows of a sample.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "data/dataset.h"
#include "data/manifest.h"
#include "data/shards.h"
#include "prepare_support.h"

namespace trireme::data {

inline constexpr std::int32_t kEnd = 9;

// Writes a folder of given documents as prepare() would; each gets its end-of-document mark.
inline void write_split(const std::filesystem::path& folder, const std::vector<std::vector<std::int32_t>>& documents,
                        std::int64_t vocabulary, std::uint64_t shard_tokens) {
  std::filesystem::create_directories(folder);
  Manifest manifest;
  manifest.tokenizer_kind = "test";
  manifest.tokenizer_digest = "test";
  manifest.vocabulary = vocabulary;
  manifest.end_of_document = kEnd;
  SplitWriter train(folder, "train", manifest.token_bytes(), shard_tokens);
  SplitWriter heldout(folder, "heldout", manifest.token_bytes(), shard_tokens);
  for (std::vector<std::int32_t> ids : documents) {
    ids.push_back(kEnd);
    const std::vector<std::uint16_t> narrow(ids.begin(), ids.end());
    train.add_document(manifest.token_bytes() == 2 ? std::as_bytes(std::span(narrow)) : std::as_bytes(std::span(ids)),
                       ids.size() - 1);
  }
  manifest.train = train.finish();
  manifest.heldout = heldout.finish();
  manifest.held_out_rule = "none";
  write(folder / "manifest.json", to_text(manifest));
}

struct Rows {
  explicit Rows(std::int64_t length)
      : ids(static_cast<std::size_t>(length), -7), labels(ids), positions(ids), starts(ids) {}
  SampleRows rows() { return {ids.data(), labels.data(), positions.data(), starts.data()}; }
  bool operator==(const Rows&) const = default;
  std::vector<std::int32_t> ids, labels, positions, starts;
};

}  // namespace trireme::data
