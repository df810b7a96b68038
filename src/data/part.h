// What one input became: its token ids and a line about each document, kept until all inputs are done, so that an
// interrupted prepare() goes on where it stopped.
//
// Three files in the parts folder, named after the input: ID.tokens, ID.documents and, last, ID.json: the record that
// vouches for them (digests of both and of the input, options, tokenizer). Nothing is flushed to disk on the way: after
// a crash of the machine the digests tell, and the input is done again.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "data/inputs.h"
#include "data/records.h"

namespace trireme::data {

inline constexpr std::size_t kMaxListed = 100;  // malformed records that are listed, not only counted

struct PartDocument {
  std::uint64_t tokens = 0;      // with its end-of-document mark
  std::uint64_t bytes = 0;       // of text
  std::uint64_t place_hash = 0;  // of its content and its line: decides the split
};

struct Faults {
  std::map<std::string, std::uint64_t> counts;  // by kind
  std::vector<Fault> listed;                    // the first kMaxListed
  void add(Fault fault);
  void add(const Faults& later);
};

struct PartRecord {
  std::string content_digest;  // of the input
  std::uint64_t documents = 0, tokens = 0, bytes = 0;
  Faults faults;
};

class PartStore {
 public:
  // key: a digest of all that decides the ids beside the input itself.
  PartStore(std::filesystem::path folder, std::string key, int token_bytes);

  // The finished part of this input as it is now; nothing where there is none or it cannot be trusted.
  std::optional<PartRecord> find(const InputFile& input) const;

  // An open part. Without finish() nothing of it counts.
  class Writer {
   public:
    Writer(const PartStore& store, const InputFile& input);
    Writer(Writer&&) noexcept;
    ~Writer();
    void add(std::string_view tokens, std::span<const PartDocument> documents, const Faults& faults);
    PartRecord finish(const std::string& content_digest);

   private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
  };

  struct Content {
    MappedFile tokens, documents;
    std::span<const PartDocument> table() const {
      return {reinterpret_cast<const PartDocument*>(documents.bytes().data()),
              documents.bytes().size() / sizeof(PartDocument)};
    }
  };
  Content open(const InputFile& input) const;

 private:
  std::filesystem::path file(const InputFile& input, const char* suffix) const;
  std::filesystem::path folder_;
  std::string key_;
  std::uint64_t token_bytes_;
};

}  // namespace trireme::data
