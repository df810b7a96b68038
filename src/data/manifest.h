// manifest.json of a prepared folder: what `trireme data prepare` made, from what, and how to check it.
//
// Written last and read first: a folder without one holds nothing. It carries a digest of itself, so that a torn or
// edited one is found; every field is checked for type and bounds all the same, since digests here stop no attacker.
// Paths of inputs are relative to the folder, so that a tree that was moved as a whole still counts as up to date.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace trireme::data {

inline constexpr const char* kManifestName = "manifest.json";
inline constexpr const char* kTokenizerFolder = "tokenizer";

// Bytes of a stored token id: 2 if every id of the vocabulary fits, else 4.
constexpr int token_bytes(std::int64_t vocabulary) {
  return vocabulary <= 65536 ? 2 : 4;
}

struct ShardEntry {
  std::uint64_t tokens = 0;
  std::string digest;  // of the file's bytes
};

// Files of a split: SPLIT-00000.tokens, ... (little-endian u16 or u32, one stream cut anywhere) and SPLIT.documents
// (u64 each: where in the stream each document ends, its end-of-document mark included).
struct SplitEntry {
  std::uint64_t documents = 0;
  std::uint64_t tokens = 0;  // with the end-of-document marks
  std::uint64_t bytes = 0;   // of text
  std::vector<ShardEntry> shards;
  std::string documents_digest;
};

struct InputEntry {
  std::string path;  // relative to the prepared folder
  std::uint64_t bytes = 0;
  std::string digest;
  bool operator==(const InputEntry&) const = default;
};

struct MalformedEntry {
  std::string kind;
  std::uint64_t input = 0;  // index into Manifest::inputs
  std::uint64_t line = 0;   // from 1
  std::uint64_t byte = 0;   // offset in the file, from 0
};

// The options that decide what is made.
struct PreparedOptions {
  std::string text_field;
  double held_out = 0;
  bool skip_malformed = false;
  std::uint64_t max_record_bytes = 0;
  std::uint64_t shard_tokens = 0;
  bool operator==(const PreparedOptions&) const = default;
};

struct Manifest {
  std::string tokenizer_kind, tokenizer_digest;
  std::int64_t vocabulary = 0;
  std::int32_t end_of_document = 0;
  PreparedOptions options;
  std::string held_out_rule;  // in words: which documents the held-out split took
  SplitEntry train, heldout;
  std::vector<InputEntry> inputs;
  std::map<std::string, std::uint64_t> malformed_counts;  // by kind
  std::vector<MalformedEntry> malformed;                  // the first 100

  int token_bytes() const { return data::token_bytes(vocabulary); }
};

std::string shard_name(const std::string& split, std::uint64_t index);
std::string documents_name(const std::string& split);

std::string to_text(const Manifest& manifest);

// Error TR4031 where there is none, TR4032 where it cannot be trusted, TR4033 for a version that we do not know.
Manifest read_manifest(const std::filesystem::path& folder);

// Of what a reader of the data sees (tokenizer, counts, digests of the shards), and of nothing else: the same for the
// same data from files elsewhere.
std::string data_digest(const Manifest& manifest);

}  // namespace trireme::data
