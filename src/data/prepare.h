// `trireme data prepare`: text and JSONL to memory-mapped token shards with a manifest.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace trireme::data {

struct PrepareOptions {
  std::vector<std::filesystem::path> inputs;  // .txt, .jsonl and folders of them (sorted by path)
  std::filesystem::path output;
  std::string tokenizer = "bytes";
  std::string text_field = "text";
  double held_out = 0.0;        // share of documents, by a hash of their content and place
  bool skip_malformed = false;  // else the first malformed record stops with Error TR4020
  int num_workers = 1;
  std::uint64_t max_record_bytes = 64u << 20;
  std::uint64_t shard_tokens = 64u << 20;
  std::function<void(double fraction, std::uint64_t tokens)> progress;
};

struct Malformed {
  std::string kind;   // "bad JSON", "no text field", "invalid UTF-8", "NUL byte", "too long", "empty"
  std::string place;  // file:line (byte offset)
};

struct PrepareReport {
  std::uint64_t documents = 0, tokens = 0, held_out_tokens = 0, bytes = 0;
  std::uint64_t malformed_count = 0;
  std::vector<Malformed> malformed;  // the first 100
  bool was_up_to_date = false;
};

// A text file is one document; a JSONL line is one. A BOM at the start of a file and blank lines are accepted. Atomic:
// output gets manifest.json last; an interrupted run continues with the finished inputs; equal options and inputs:
// nothing to do. Errors: TR4001 .. TR4009 inputs and options, TR4010 another process is at work in the output, TR4011
// the output is not ours to write, TR4020 a malformed record, TR4021 no usable document, TR4024 ids that no vocabulary
// has, TR3011 and TR3012 the disk. What an error leaves behind is at most work that the next attempt goes on with.
PrepareReport prepare(const PrepareOptions& options);

}  // namespace trireme::data
