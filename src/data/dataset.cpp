#include "data/dataset.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <mutex>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/random.h"
#include "data/manifest.h"
#include "data/split.h"

namespace trireme::data {
namespace {

static_assert(std::endian::native == std::endian::little, "shards are little-endian and read as they lie");

constexpr const char* kPrepareAgain = "prepare the data again, or restore the file from where it came";

// A file of the folder, mapped when the data set opens; its bytes are checked against the manifest on first touch.
class CheckedFile {
 public:
  CheckedFile(std::filesystem::path path, std::string digest, std::uint64_t bytes)
      : path_(std::move(path)), digest_(std::move(digest)) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(path_, error)) {
      throw Error(4030, path_.string(), "is missing or no file, but the manifest names it", kPrepareAgain);
    }
    map_ = MappedFile(path_);
    if (map_.bytes().size() != bytes) {
      fail("is " + std::to_string(map_.bytes().size()) + " bytes long, the manifest says " + std::to_string(bytes));
    }
  }

  template <class Check>
  std::span<const std::byte> bytes(const Check& check_content) const {
    if (!checked_.load(std::memory_order_acquire)) {
      // Not std::call_once: it hangs after an exception where pthread_once is intercepted (thread sanitizer).
      const std::lock_guard lock(mutex_);
      if (!checked_.load(std::memory_order_relaxed)) {
        const std::string found = trireme::digest(map_.bytes());
        if (found != digest_) fail("has digest " + found + ", the manifest says " + digest_);
        check_content(map_.bytes());
        checked_.store(true, std::memory_order_release);
      }
    }
    return map_.bytes();
  }

  [[noreturn]] void fail(const std::string& what) const { throw Error(4030, path_.string(), what, kPrepareAgain); }

 private:
  std::filesystem::path path_;
  std::string digest_;
  MappedFile map_;
  mutable std::mutex mutex_;
  mutable std::atomic<bool> checked_ = false;
};

template <class Stored>
std::uint64_t highest_id(std::span<const std::byte> bytes) {
  const auto* ids = reinterpret_cast<const Stored*>(bytes.data());
  const std::size_t count = bytes.size() / sizeof(Stored);
  Stored highest = 0;
  for (std::size_t i = 0; i < count; ++i) highest = std::max(highest, ids[i]);
  return highest;
}

template <class Stored>
void widen(std::span<const std::byte> bytes, std::uint64_t first, std::uint64_t count, std::int32_t* out) {
  const auto* ids = reinterpret_cast<const Stored*>(bytes.data()) + first;
  for (std::uint64_t i = 0; i < count; ++i) out[i] = static_cast<std::int32_t>(ids[i]);
}

}  // namespace

struct Dataset::Impl {
  std::filesystem::path folder;
  DatasetOptions options;
  Manifest manifest;
  const SplitEntry* split = nullptr;
  std::string digest;
  std::vector<std::unique_ptr<CheckedFile>> shards;
  std::vector<std::uint64_t> shard_ends;  // in tokens of the split
  std::unique_ptr<CheckedFile> document_ends;
  DocumentRange documents;        // of the split
  std::uint64_t first_token = 0;  // where they begin in the split
  std::uint64_t num_tokens = 0;   // of them
  std::uint64_t num_samples = 0;

  void open(const std::string& name) {
    const auto width = static_cast<std::uint64_t>(manifest.token_bytes());
    std::uint64_t end = 0;
    for (const ShardEntry& shard : split->shards) {
      const std::filesystem::path path = folder / shard_name(name, shards.size());
      shards.push_back(std::make_unique<CheckedFile>(path, shard.digest, shard.tokens * width));
      shard_ends.push_back(end += shard.tokens);
    }
    document_ends = std::make_unique<CheckedFile>(folder / documents_name(name), split->documents_digest,
                                                  split->documents * sizeof(std::uint64_t));
  }

  // Which documents, and how many samples they make.
  void select(const Split& selection) {
    documents = documents_of(selection, split->documents);
    num_tokens = split->tokens;
    if (documents.size() < split->documents) {
      const std::span<const std::uint64_t> all = ends();
      first_token = documents.begin == 0 ? 0 : all[documents.begin - 1];
      num_tokens = documents.end == documents.begin ? 0 : all[documents.end - 1] - first_token;
    }
    if (num_tokens == 0) return;
    const auto length = static_cast<std::uint64_t>(options.sequence_length);
    num_samples = options.packing == Packing::padded ? documents.size() : (num_tokens - 1 + length - 1) / length;
    if (options.max_samples > 0) num_samples = std::min(num_samples, options.max_samples);
  }

  bool has_all_of(const SplitEntry& whole) const {
    return options.packing == Packing::packed && options.max_samples == 0 && num_tokens == whole.tokens;
  }

  // What a run of these samples must not change half-way; nothing where it is all of the train split, packed.
  std::string selection_text(const std::string& name) const {
    if (name == "train" && has_all_of(*split)) return {};
    std::string text = "\n" + name + " " + std::to_string(documents.begin) + " " + std::to_string(documents.end) + " " +
                       std::to_string(num_samples);
    if (options.packing == Packing::padded) text += options.end_marks ? " padded with end marks" : " padded";
    if (options.packing == Packing::padded) {
      for (const std::int32_t id : options.prefix) text += " " + std::to_string(id);
    }
    return text;
  }

  // Where a document of the selection begins and ends in the split, with or without its end mark.
  std::pair<std::uint64_t, std::uint64_t> tokens_of(std::uint64_t document) const {
    const std::span<const std::uint64_t> all = ends();
    const std::uint64_t index = documents.begin + document;
    return {index == 0 ? 0 : all[index - 1], all[index] - (options.end_marks ? 0 : 1)};
  }

  void read_packed(std::uint64_t sample, const SampleRows& rows) const {
    const auto length = static_cast<std::uint64_t>(options.sequence_length);
    const std::uint64_t begin = sample * length;
    const std::uint64_t num_ids = std::min(length, num_tokens - begin);
    const std::uint64_t num_labels = std::min(length, num_tokens - begin - 1);
    copy_tokens(first_token + begin, num_ids, rows.ids);
    std::fill(rows.ids + num_ids, rows.ids + length, manifest.end_of_document);
    std::copy(rows.ids + 1, rows.ids + num_ids, rows.labels);
    if (num_labels == num_ids) copy_tokens(first_token + begin + num_ids, 1, rows.labels + num_ids - 1);
    std::fill(rows.labels + num_labels, rows.labels + length, -1);
    if (options.document_borders) {
      mark_documents(first_token + begin, rows);
      return;
    }
    for (std::uint64_t t = 0; t < length; ++t) rows.positions[t] = static_cast<std::int32_t>(t);
    std::fill(rows.starts, rows.starts + length, 0);
  }

  void read_padded(std::uint64_t document, const SampleRows& rows) const {
    const auto length = static_cast<std::uint64_t>(options.sequence_length);
    const auto [begin, end] = tokens_of(document);
    const std::uint64_t num_before = std::min<std::uint64_t>(length, options.prefix.size());
    const std::uint64_t num_ids = std::min(length, num_before + (end - begin));
    std::copy_n(options.prefix.begin(), num_before, rows.ids);
    copy_tokens(begin, num_ids - num_before, rows.ids + num_before);
    std::fill(rows.ids + num_ids, rows.ids + length, options.pad_token.value_or(manifest.end_of_document));
    std::fill(rows.labels, rows.labels + length, -1);
    if (num_ids > 0) std::copy(rows.ids + 1, rows.ids + num_ids, rows.labels);
    for (std::uint64_t t = 0; t < length; ++t) {
      const bool is_pad = t >= num_ids;
      rows.positions[t] = is_pad ? 0 : static_cast<std::int32_t>(t);
      rows.starts[t] = is_pad ? static_cast<std::int32_t>(t) : 0;
    }
  }

  std::span<const std::byte> shard(std::size_t index) const {
    const CheckedFile& file = *shards[index];
    return file.bytes([&](std::span<const std::byte> bytes) {
      const std::uint64_t id =
          manifest.token_bytes() == 2 ? highest_id<std::uint16_t>(bytes) : highest_id<std::uint32_t>(bytes);
      if (id >= static_cast<std::uint64_t>(manifest.vocabulary)) {
        file.fail("holds token id " + std::to_string(id) + ", but the vocabulary has " +
                  std::to_string(manifest.vocabulary));
      }
    });
  }

  std::span<const std::uint64_t> ends() const {
    const auto as_numbers = [](std::span<const std::byte> bytes) {
      return std::span(reinterpret_cast<const std::uint64_t*>(bytes.data()), bytes.size() / sizeof(std::uint64_t));
    };
    return as_numbers(document_ends->bytes([&](std::span<const std::byte> bytes) {
      const std::span<const std::uint64_t> numbers = as_numbers(bytes);
      std::uint64_t previous = 0;
      for (const std::uint64_t end : numbers) {
        if (end <= previous) document_ends->fail("is not in ascending order");
        previous = end;
      }
      if (previous != split->tokens) document_ends->fail("does not end with the split's last token");
    }));
  }

  // Tokens [begin, begin + count) of the split, which must exist.
  void copy_tokens(std::uint64_t begin, std::uint64_t count, std::int32_t* out) const {
    auto index =
        static_cast<std::size_t>(std::upper_bound(shard_ends.begin(), shard_ends.end(), begin) - shard_ends.begin());
    for (; count > 0; ++index) {
      const std::span<const std::byte> bytes = shard(index);
      const std::uint64_t first = begin - (index == 0 ? 0 : shard_ends[index - 1]);
      const std::uint64_t here = std::min(count, shard_ends[index] - begin);
      if (manifest.token_bytes() == 2) {
        widen<std::uint16_t>(bytes, first, here, out);
      } else {
        widen<std::uint32_t>(bytes, first, here, out);
      }
      begin += here;
      out += here;
      count -= here;
    }
  }

  void mark_documents(std::uint64_t begin, const SampleRows& rows) const {
    const std::span<const std::uint64_t> document_end = ends().first(documents.end);
    auto next = std::upper_bound(document_end.begin(), document_end.end(), begin);
    std::int32_t start = 0;
    for (std::int64_t t = 0; t < options.sequence_length; ++t) {
      const std::uint64_t token = begin + static_cast<std::uint64_t>(t);
      if (next != document_end.end() && *next == token) {
        start = static_cast<std::int32_t>(t);
        ++next;
      }
      if (next != document_end.end() && *next == token + 1) rows.labels[t] = -1;
      rows.positions[t] = static_cast<std::int32_t>(t) - start;
      rows.starts[t] = start;
    }
  }
};

Dataset::Dataset(const std::filesystem::path& folder, const std::string& split, const DatasetOptions& options)
    : impl_(std::make_unique<Impl>()) {
  const std::string place = folder.string();
  const Split selection = parse_split(split, place);
  const bool held_out = selection.name == "heldout";
  if (options.sequence_length < 1 || options.sequence_length > (1 << 30)) {
    throw Error(4022, place, "cannot be cut into samples of " + std::to_string(options.sequence_length) + " tokens",
                "sequence_length is a number from 1 to " + std::to_string(1 << 30));
  }
  impl_->folder = folder;
  impl_->options = options;
  impl_->manifest = read_manifest(folder);
  std::vector<std::int32_t> added = options.prefix;
  if (options.pad_token) added.push_back(*options.pad_token);
  for (const std::int32_t id : added) {
    if (id >= 0 && id < impl_->manifest.vocabulary) continue;
    throw Error(4026, place, "has no token id " + std::to_string(id) + " to pad or to begin with",
                "its ids are 0 to " + std::to_string(impl_->manifest.vocabulary - 1));
  }
  impl_->split = held_out ? &impl_->manifest.heldout : &impl_->manifest.train;
  if (impl_->split->tokens == 0) {
    throw Error(4023, place, "has nothing in the split \"" + selection.name + "\"",
                held_out ? "prepare the data with a held-out share (--held-out 0.05), or turn evaluation off"
                         : "prepare the data with a smaller held-out share");
  }
  impl_->open(selection.name);
  impl_->select(selection);
  if (impl_->num_tokens == 0) {
    throw Error(
        4023, place,
        "has nothing in \"" + split + "\": the split has " + std::to_string(impl_->split->documents) + " documents",
        "name documents that are there");
  }
  const bool too_short =
      impl_->num_tokens < 2 || impl_->num_tokens < static_cast<std::uint64_t>(options.sequence_length);
  if (options.packing == Packing::packed && too_short) {
    throw Error(4022, place,
                "sequence_length is " + std::to_string(options.sequence_length) + ", but the split \"" + split +
                    "\" has only " + std::to_string(impl_->num_tokens) + " tokens in " +
                    std::to_string(impl_->documents.size()) + " documents",
                held_out ? "use a shorter sequence_length, or prepare the data with a larger held-out share"
                         : "use a shorter sequence_length, or more text");
  }
  impl_->digest = data_digest(impl_->manifest);
  const std::string selected = impl_->selection_text(selection.name);
  if (!selected.empty()) impl_->digest = trireme::digest(impl_->digest + selected);
}

Dataset::~Dataset() = default;

std::uint64_t Dataset::num_samples() const {
  return impl_->num_samples;
}

std::uint64_t Dataset::num_tokens() const {
  return impl_->num_tokens;
}

std::uint64_t Dataset::num_bytes() const {
  return impl_->has_all_of(*impl_->split) ? impl_->split->bytes : 0;
}

std::uint64_t Dataset::num_cut() const {
  if (impl_->options.packing == Packing::packed) return 0;
  std::uint64_t count = 0;
  for (std::uint64_t document = 0; document < num_samples(); ++document) {
    const auto [begin, end] = impl_->tokens_of(document);
    const std::uint64_t size = impl_->options.prefix.size() + (end - begin);
    count += size > static_cast<std::uint64_t>(impl_->options.sequence_length) ? 1 : 0;
  }
  return count;
}

std::uint64_t Dataset::num_documents() const {
  return impl_->documents.size();
}

std::uint64_t Dataset::document_end(std::uint64_t document) const {
  TRIREME_CHECK(document < num_documents(), "document beyond the split");
  return impl_->ends()[impl_->documents.begin + document] - impl_->first_token;
}

std::int64_t Dataset::vocabulary() const {
  return impl_->manifest.vocabulary;
}

const DatasetOptions& Dataset::options() const {
  return impl_->options;
}

std::int64_t Dataset::sequence_length() const {
  return impl_->options.sequence_length;
}

const std::string& Dataset::digest() const {
  return impl_->digest;
}

const std::string& Dataset::tokenizer_digest() const {
  return impl_->manifest.tokenizer_digest;
}

const std::string& Dataset::text_field() const {
  return impl_->manifest.options.text_field;
}

std::filesystem::path Dataset::tokenizer_folder() const {
  return impl_->folder / kTokenizerFolder;
}

void Dataset::read(std::uint64_t sample, const SampleRows& rows) const {
  TRIREME_CHECK(sample < num_samples(), "sample beyond the split");
  impl_->options.packing == Packing::padded ? impl_->read_padded(sample, rows) : impl_->read_packed(sample, rows);
}

std::vector<std::int32_t> Dataset::tokens(std::uint64_t begin, std::uint64_t end) const {
  TRIREME_CHECK(begin <= end && end <= num_tokens(), "tokens beyond the split");
  std::vector<std::int32_t> ids(end - begin);
  impl_->copy_tokens(impl_->first_token + begin, end - begin, ids.data());
  return ids;
}

std::uint64_t SampleOrder::sample(std::uint64_t position) const {
  TRIREME_CHECK(num_samples > 0, "an order over no samples");
  const std::uint64_t place = position % num_samples;
  if (!shuffle) return place;
  return permute(seed, stream_id("data/epoch-" + std::to_string(epoch(position))), num_samples, place);
}

}  // namespace trireme::data
