#include "data/assemble.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/failpoint.h"
#include "base/file.h"
#include "data/pipeline.h"
#include "data/records.h"
#include "data/shards.h"
#include "data/up_to_date.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();

// Which documents are held out: a pure function of their hashes, so that adding documents moves none of the others.
class HeldOut {
 public:
  HeldOut(const std::vector<InputFile>& inputs, const PartStore& store, double share) : share_(share) {
    std::uint64_t lowest = kNone, highest = 0, below = 0, first = 0, last = 0;
    for (const InputFile& input : inputs) {
      const PartStore::Content part = store.open(input);
      for (const PartDocument& document : part.table()) {
        const std::uint64_t hash = document.place_hash;
        if (num_documents_ == 0 || hash < lowest) lowest = hash, first = num_documents_;
        if (num_documents_ == 0 || hash > highest) highest = hash, last = num_documents_;
        below += is_below(hash) ? 1 : 0;
        ++num_documents_;
      }
    }
    if (share_ == 0 || num_documents_ < 2) return;
    if (below == 0) forced_in_ = first;
    if (below == num_documents_) forced_out_ = last;
  }

  bool takes(std::uint64_t index, std::uint64_t hash) const {
    return index == forced_in_ || (is_below(hash) && index != forced_out_ && num_documents_ > 1);
  }
  bool splits_the_only_document() const { return share_ > 0 && num_documents_ == 1; }
  std::string rule() const {
    if (share_ == 0) return "none";
    if (forced_in_ != kNone) return "the document with the lowest hash, since none is below the share";
    if (forced_out_ != kNone) return "all documents but that with the highest hash, since all are below the share";
    return "documents whose hash of content and line is below the share";
  }

 private:
  bool is_below(std::uint64_t hash) const { return static_cast<double>(hash >> 11) * 0x1p-53 < share_; }

  double share_;
  std::uint64_t num_documents_ = 0;
  std::uint64_t forced_in_ = kNone, forced_out_ = kNone;
};

std::uint64_t share_of_only_document(const std::string& text, double share) {
  const auto size = static_cast<double>(text.size());
  auto cut = text.size() - static_cast<std::size_t>(std::clamp(std::round(size * share), 1.0, size));
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) --cut;
  return cut;
}

std::string text_of_only_document(const PrepareOptions& options, const InputFile& input) {
  constexpr std::size_t kBatchBytes = 1 << 20;
  RecordReader reader(input, options.max_record_bytes);
  while (const std::optional<RecordBatch> batch = reader.next(kBatchBytes)) {
    for (const Record& record : batch->records) {
      Checked checked = check_record(input.kind, batch->text(record), record, options.text_field);
      if (!checked.fault) return std::move(checked.text);
    }
  }
  throw Error(4007, input.path.string(), "the input changed while it was read",
              "run the command again once nothing writes to it");
}

void add_text(const std::string& text, const Tokenizer& tokenizer, int token_bytes, SplitWriter& split) {
  std::vector<std::int32_t> ids = tokenizer.encode(text);
  ids.push_back(tokenizer.end_of_document());
  const std::string packed = pack_tokens(ids, tokenizer, token_bytes);
  split.add_document(std::as_bytes(std::span(packed)), text.size());
}

// The rule's words for the manifest.
std::string write_only_document(const PrepareOptions& options, const std::vector<InputFile>& inputs,
                                const PartStore& store, const Tokenizer& tokenizer, int token_bytes, SplitWriter& train,
                                SplitWriter& heldout) {
  const auto input = std::find_if(inputs.begin(), inputs.end(),
                                  [&](const InputFile& file) { return !store.open(file).table().empty(); });
  TRIREME_CHECK(input != inputs.end(), "the only document is in no part");
  const std::string text = text_of_only_document(options, *input);
  const std::uint64_t cut = share_of_only_document(text, options.held_out);
  if (cut == 0) {
    add_text(text, tokenizer, token_bytes, train);
    return "none, since the only document cannot be cut in two";
  }
  add_text(text.substr(0, cut), tokenizer, token_bytes, train);
  add_text(text.substr(cut), tokenizer, token_bytes, heldout);
  return "the tail of the only document, from byte " + std::to_string(cut) + " of its text";
}

std::string write_documents(const HeldOut& held_out, const std::vector<InputFile>& inputs, const PartStore& store,
                            int token_bytes, const Progress& progress, SplitWriter& train, SplitWriter& heldout) {
  std::uint64_t index = 0, tokens = 0, inputs_done = 0;
  for (const InputFile& input : inputs) {
    const PartStore::Content part = store.open(input);
    std::span<const std::byte> rest = part.tokens.bytes();
    for (const PartDocument& document : part.table()) {
      const std::uint64_t bytes = document.tokens * static_cast<std::uint64_t>(token_bytes);
      SplitWriter& split = held_out.takes(index++, document.place_hash) ? heldout : train;
      split.add_document(rest.first(bytes), document.bytes);
      rest = rest.subspan(bytes);
      tokens += document.tokens;
    }
    ++inputs_done;
    progress.assembled(static_cast<double>(inputs_done) / static_cast<double>(inputs.size()), tokens);
  }
  return held_out.rule();
}

}  // namespace

Manifest describe_parts(const PrepareOptions& options, const std::vector<InputFile>& inputs,
                        const std::vector<PartRecord>& parts, const Tokenizer& tokenizer) {
  Manifest manifest;
  manifest.tokenizer_kind = tokenizer.kind();
  manifest.tokenizer_digest = tokenizer.digest();
  manifest.vocabulary = tokenizer.vocabulary();
  manifest.end_of_document = tokenizer.end_of_document();
  manifest.options = prepared_options(options);
  std::uint64_t documents = 0, malformed = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const PartRecord& part = parts[i];
    manifest.inputs.push_back({input_name(inputs[i], options.output), inputs[i].bytes, part.content_digest});
    documents += part.documents;
    for (const auto& [kind, count] : part.faults.counts) {
      manifest.malformed_counts[kind] += count;
      malformed += count;
    }
    for (const Fault& fault : part.faults.listed) {
      if (manifest.malformed.size() == kMaxListed) break;
      manifest.malformed.push_back({fault.kind, i, fault.line, fault.byte});
    }
  }
  if (documents == 0) {
    throw Error(4021, inputs.front().path.string() + (inputs.size() > 1 ? " and others" : ""),
                "no usable document in " + std::to_string(inputs.size()) + " files, and " + std::to_string(malformed) +
                    " malformed records",
                "a .txt file is one document; each line of a .jsonl file is an object with the text in \"" +
                    options.text_field + "\"");
  }
  return manifest;
}

void assemble(const PrepareOptions& options, const std::vector<InputFile>& inputs, const Tokenizer& tokenizer,
              const PartStore& store, const fs::path& tokenizer_copy, const Progress& progress, Manifest& manifest) {
  const fs::path& output = options.output;
  fs::remove(output / kManifestName);  // first: what it vouches for goes now
  fsync_directory(output);
  remove_split_files(output);
  fs::remove_all(output / kTokenizerFolder);
  fs::rename(tokenizer_copy, output / kTokenizerFolder);

  const int token_bytes = manifest.token_bytes();
  const HeldOut held_out(inputs, store, options.held_out);
  SplitWriter train(output, "train", token_bytes, options.shard_tokens);
  SplitWriter heldout(output, "heldout", token_bytes, options.shard_tokens);
  manifest.held_out_rule = held_out.splits_the_only_document()
                               ? write_only_document(options, inputs, store, tokenizer, token_bytes, train, heldout)
                               : write_documents(held_out, inputs, store, token_bytes, progress, train, heldout);
  manifest.train = train.finish();
  manifest.heldout = heldout.finish();
  fsync_directory(output);
  failpoint("data.prepare.manifest");
  write_file_atomic(output / kManifestName, to_text(manifest));
}

}  // namespace trireme::data
