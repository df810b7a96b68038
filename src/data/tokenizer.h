// Text to token ids and back: byte-level BPE as Hugging Face tokenizers do it, and plain bytes.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // Thread-safe. Special tokens in the text become their ids (as Hugging Face's encode with add_special_tokens =
  // false). Bytes that are no UTF-8 are taken as U+FFFD by BPE, as they are by the byte tokenizer.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  // Bytes of the ids one after the other; they need not be valid UTF-8. Ids out of range: Error TR4110.
  virtual std::string decode(const std::int32_t* ids, std::size_t count, bool skip_special = false) const = 0;
  virtual std::int64_t vocabulary() const = 0;       // highest id + 1
  virtual std::int32_t end_of_document() const = 0;  // joins documents
  virtual const std::string& digest() const = 0;     // of everything that decides the ids
  virtual const std::string& kind() const = 0;       // "bytes", "bpe"
};

// "bytes", a folder or a tokenizer.json, or a folder with vocab.json and merges.txt. Errors TR41xx name file and what
// is not supported (a pre-tokenizer, normalizer or model that we do not know), never guess.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& what);

// Copies what load_tokenizer(what) read into the folder so that load_tokenizer(folder) gives the same one.
void save_tokenizer(const std::string& what, const std::filesystem::path& folder);

}  // namespace trireme::data
