#include "data/up_to_date.h"

#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "data/records.h"
#include "data/tokenizer.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

std::string stamp_line(const InputFile& file) {
  return file.absolute.string() + "\n" + std::to_string(file.bytes) + " " + std::to_string(file.modified_ns) + "\n";
}

bool is_whole(const SplitEntry& entry, const std::string& split, int token_bytes, const fs::path& folder) {
  const auto has_size = [&](const std::string& name, std::uint64_t bytes) {
    std::error_code error;
    return fs::file_size(folder / name, error) == bytes && !error;
  };
  for (std::size_t i = 0; i < entry.shards.size(); ++i) {
    const std::uint64_t bytes = entry.shards[i].tokens * static_cast<std::uint64_t>(token_bytes);
    if (!has_size(shard_name(split, i), bytes)) return false;
  }
  return has_size(documents_name(split), entry.documents * sizeof(std::uint64_t));
}

}  // namespace

Stamps::Stamps(const std::vector<InputFile>& inputs, const std::vector<fs::path>& tokenizer_files, fs::path output)
    : output_(std::move(output)) {
  for (const InputFile& input : inputs) files_ += stamp_line(input);
  files_ += "tokenizer\n";
  for (const fs::path& file : tokenizer_files) files_ += stamp_line(stat_input(file));
}

std::string Stamps::text() const {
  return digest(files_ + read_file(output_ / kManifestName));
}

bool Stamps::match(const fs::path& saved) const {
  std::error_code ignored;
  return fs::is_regular_file(saved, ignored) && read_file(saved) == text();
}

void Stamps::save(const fs::path& file) const {
  write_file_atomic(file, text());
}

std::string input_name(const InputFile& input, const fs::path& output) {
  return input.absolute.lexically_relative(fs::canonical(output)).generic_string();
}

PreparedOptions prepared_options(const PrepareOptions& options) {
  return {options.text_field, options.held_out, options.skip_malformed, options.max_record_bytes, options.shard_tokens};
}

bool is_up_to_date(const Manifest& manifest, const PrepareOptions& options, const std::vector<InputFile>& inputs,
                   const Stamps& stamps, const fs::path& saved_stamps) {
  const int token_bytes = manifest.token_bytes();
  if (manifest.options != prepared_options(options) || manifest.inputs.size() != inputs.size()) return false;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const InputEntry& entry = manifest.inputs[i];
    if (entry.path != input_name(inputs[i], options.output) || entry.bytes != inputs[i].bytes) return false;
  }
  if (!is_whole(manifest.train, "train", token_bytes, options.output) ||
      !is_whole(manifest.heldout, "heldout", token_bytes, options.output)) {
    return false;
  }
  if (stamps.match(saved_stamps)) return true;
  if (load_tokenizer(options.tokenizer)->digest() != manifest.tokenizer_digest) return false;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (content_digest(inputs[i]) != manifest.inputs[i].digest) return false;
  }
  stamps.save(saved_stamps);
  return true;
}

}  // namespace trireme::data
