#include "data/prepare.h"

#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/failpoint.h"
#include "base/file.h"
#include "base/hash.h"
#include "data/assemble.h"
#include "data/folder_lock.h"
#include "data/inputs.h"
#include "data/manifest.h"
#include "data/part.h"
#include "data/pipeline.h"
#include "data/tokenizer.h"
#include "data/tokenizer_files.h"
#include "data/up_to_date.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kScratchFolder = ".prepare";

void check_options(const PrepareOptions& options) {
  const auto refuse = [](const std::string& what, const std::string& remedy) {
    throw Error(4009, "data prepare", what, remedy);
  };
  if (!(options.held_out >= 0 && options.held_out < 1)) {
    refuse("the held-out share is " + std::to_string(options.held_out), "it is a share from 0 to below 1");
  }
  if (options.num_workers < 1 || options.num_workers > 1024) {
    refuse("the number of workers is " + std::to_string(options.num_workers), "it is a number from 1 to 1024");
  }
  if (options.max_record_bytes < 1 || options.max_record_bytes > (std::uint64_t{1} << 40)) {
    refuse("the longest record is " + std::to_string(options.max_record_bytes) + " bytes", "it is from 1 to 2^40");
  }
  if (options.shard_tokens < 1 || options.shard_tokens > (std::uint64_t{1} << 40)) {
    refuse("a shard has " + std::to_string(options.shard_tokens) + " tokens", "it is from 1 to 2^40");
  }
  if (options.output.empty()) refuse("no output folder is named", "name one with --output");
}

[[noreturn]] void stop_at(const InputFile& input, const Fault& fault) {
  throw Error(4020, input.path.string() + ":" + std::to_string(fault.line),
              "malformed record: " + fault.kind + " (byte " + std::to_string(fault.byte) + ")",
              fault.kind == kTooLong ? "raise --max-record-bytes, cut the record, or leave it out (--on-malformed skip)"
                                     : "mend the record, or leave it out (--on-malformed skip)");
}

// The folder of the output in which work in progress lies. What an error leaves there serves the next attempt; where
// there is nothing to serve it, no trace remains.
class Scratch {
 public:
  explicit Scratch(const fs::path& output)
      : output_(output), made_output_(fs::create_directories(output)), folder_(output / kScratchFolder) {
    fs::create_directories(parts());
    lock_ = std::make_unique<FolderLock>(folder_ / "lock");
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    std::error_code ignored;
    if (!lock_ || keep_ || has_finished_part()) return;
    fs::remove_all(folder_, ignored);
    if (made_output_) fs::remove(output_, ignored);
  }

  fs::path parts() const { return folder_ / "parts"; }
  fs::path stamps() const { return folder_ / "stamps.json"; }
  fs::path tokenizer() const { return folder_ / "tokenizer"; }
  void keep() { keep_ = true; }
  void clear() {
    fs::remove_all(parts());
    fs::remove_all(tokenizer());
  }

 private:
  bool has_finished_part() const {
    std::error_code error;
    for (fs::directory_iterator entry(parts(), error), end; !error && entry != end; entry.increment(error)) {
      if (entry->path().extension() == ".json") return true;
    }
    return false;
  }

  fs::path output_;
  bool made_output_;
  fs::path folder_;
  bool keep_ = false;
  std::unique_ptr<FolderLock> lock_;
};

std::string part_key(const PrepareOptions& options, const Tokenizer& tokenizer) {
  std::string key = "part 1\n" + tokenizer.digest() + "\n" + std::to_string(tokenizer.vocabulary()) + " " +
                    std::to_string(tokenizer.end_of_document());
  key += "\n" + std::to_string(options.max_record_bytes) + (options.skip_malformed ? " skip\n" : " stop\n");
  return digest(key + options.text_field);
}

// Finished parts of all inputs: those of an earlier attempt, and the rest now.
std::vector<PartRecord> make_parts(const PrepareOptions& options, const std::vector<InputFile>& inputs,
                                   const Tokenizer& tokenizer, const PartStore& store, const Progress& progress) {
  std::vector<PartRecord> parts(inputs.size());
  std::vector<std::size_t> missing;
  std::vector<InputFile> todo;
  std::uint64_t bytes_done = 0, tokens_done = 0, bytes_in_all = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    bytes_in_all += inputs[i].bytes;
    if (std::optional<PartRecord> found = store.find(inputs[i])) {
      bytes_done += inputs[i].bytes;
      tokens_done += found->tokens;
      parts[i] = std::move(*found);
    } else {
      missing.push_back(i);
      todo.push_back(inputs[i]);
    }
  }
  std::optional<PartStore::Writer> writer;
  const PipelineOptions pipeline{options.text_field, options.max_record_bytes, options.num_workers,
                                 token_bytes(tokenizer.vocabulary())};
  tokenize_inputs(todo, tokenizer, pipeline, [&](const TokenizedBatch& batch) {
    const InputFile& input = todo[batch.input];
    if (!options.skip_malformed && !batch.faults.listed.empty()) stop_at(input, batch.faults.listed.front());
    if (!writer) writer.emplace(store, input);
    writer->add(batch.tokens, batch.documents, batch.faults);
    for (const PartDocument& document : batch.documents) tokens_done += document.tokens;
    progress.tokenized(static_cast<double>(bytes_done + batch.bytes_read) / static_cast<double>(bytes_in_all + 1),
                       tokens_done);
    if (!batch.last) return;
    parts[missing[batch.input]] = writer->finish(batch.content_digest);
    writer.reset();
    bytes_done += input.bytes;
    failpoint("data.prepare");
  });
  return parts;
}

PrepareReport report_of(const Manifest& manifest, const std::vector<InputFile>& inputs) {
  PrepareReport report;
  report.documents = manifest.train.documents + manifest.heldout.documents;
  report.tokens = manifest.train.tokens + manifest.heldout.tokens;
  report.held_out_tokens = manifest.heldout.tokens;
  report.bytes = manifest.train.bytes + manifest.heldout.bytes;
  for (const auto& entry : manifest.malformed_counts) report.malformed_count += entry.second;
  for (const MalformedEntry& entry : manifest.malformed) {
    report.malformed.push_back({entry.kind, inputs.at(entry.input).path.string() + ":" + std::to_string(entry.line) +
                                                " (byte " + std::to_string(entry.byte) + ")"});
  }
  return report;
}

// The manifest of an earlier prepare(). A file of that name that is not ours is never replaced.
std::optional<Manifest> earlier_manifest(const fs::path& output) {
  std::error_code ignored;
  if (!fs::exists(fs::symlink_status(output / kManifestName, ignored))) return std::nullopt;
  try {
    return read_manifest(output);
  } catch (const Error& error) {
    throw Error(4011, output.string(), "holds a manifest.json that is not one of prepared data: " + error.message(),
                "choose a fresh output folder, or remove that file if nothing needs it");
  }
}

PrepareReport prepare_checked(const PrepareOptions& options) {
  const std::vector<InputFile> inputs = collect_inputs(options);
  std::error_code ignored;
  if (fs::exists(options.output, ignored) && !fs::is_directory(options.output, ignored)) {
    throw Error(4011, options.output.string(), "the output exists and is no folder", "choose another output folder");
  }
  const TokenizerFiles tokenizer_files = find_tokenizer_files(options.tokenizer);
  Scratch scratch(options.output);
  const Stamps stamps(inputs, tokenizer_files.all, options.output);
  if (const std::optional<Manifest> earlier = earlier_manifest(options.output)) {
    scratch.keep();
    if (is_up_to_date(*earlier, options, inputs, stamps, scratch.stamps())) {
      PrepareReport report = report_of(*earlier, inputs);
      report.was_up_to_date = true;
      return report;
    }
  }

  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(options.tokenizer);
  const Progress progress(options.progress);
  const PartStore store(scratch.parts(), part_key(options, *tokenizer), token_bytes(tokenizer->vocabulary()));
  const std::vector<PartRecord> parts = make_parts(options, inputs, *tokenizer, store, progress);
  Manifest manifest = describe_parts(options, inputs, parts, *tokenizer);
  fs::remove_all(scratch.tokenizer());
  save_tokenizer(options.tokenizer, scratch.tokenizer());
  assemble(options, inputs, *tokenizer, store, scratch.tokenizer(), progress, manifest);
  scratch.keep();
  stamps.save(scratch.stamps());
  scratch.clear();
  progress.done(manifest.train.tokens + manifest.heldout.tokens);
  return report_of(manifest, inputs);
}

}  // namespace

PrepareReport prepare(const PrepareOptions& options) {
  check_options(options);
  try {
    return prepare_checked(options);
  } catch (const fs::filesystem_error& error) {
    const bool full = error.code() == std::errc::no_space_on_device;
    throw Error(full ? kDiskFull : kWriteFailed, error.path1().string(), error.code().message(),
                full ? "free space there or choose another output folder" : "can this user write there?");
  }
}

}  // namespace trireme::data
