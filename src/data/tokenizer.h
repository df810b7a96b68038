// Text to token ids and back: BPE as Hugging Face tokenizers do it (byte-level, or by characters with byte tokens), and
// plain bytes.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

// Ids that a tokenizer's files give a part to play. Unset where they name none, or one that is not in the vocabulary.
struct SpecialTokens {
  std::vector<std::int32_t> before, after;                   // what belongs around one text: begin-of-text, end-of-text
  std::optional<std::int32_t> begin, end, padding, unknown;  // bos_token, eos_token, pad_token, unk_token
};

// A place in a text that is decoded token by token: a text begins with DecodeState{}.
struct DecodeState {
  std::int64_t tokens = 0;    // so far
  std::int32_t stripped = 0;  // characters taken from the front
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // Thread-safe. Special tokens in the text become their ids (as Hugging Face's encode with add_special_tokens =
  // false). Bytes that are no UTF-8 are taken as U+FFFD by BPE, as they are by the byte tokenizer.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  // Bytes of the ids one after the other; they need not be valid UTF-8. What the tokenizer puts before a text when it
  // encodes (a space) does not come back. Ids out of range: Error TR4110.
  std::string decode(const std::int32_t* ids, std::size_t count, bool skip_special = false) const;
  // The same, one id at a time: appends its bytes. tokenizer_stream.h makes characters of them.
  virtual void decode_next(std::int32_t id, bool skip_special, DecodeState& state, std::string& text) const = 0;
  virtual std::int64_t vocabulary() const = 0;       // highest id + 1
  virtual bool has(std::int32_t id) const = 0;       // some ids below may belong to no token
  virtual std::int32_t end_of_document() const = 0;  // joins documents
  virtual const SpecialTokens& special() const = 0;
  virtual const std::string& digest() const = 0;  // of everything that decides the ids
  virtual const std::string& kind() const = 0;    // "bytes", "bpe"
};

// "bytes", a folder or a tokenizer.json, or a folder with vocab.json and merges.txt. Errors TR41xx name file and what
// is not supported (a pre-tokenizer, normalizer or model that we do not know), never guess.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& what);

// Copies what load_tokenizer(what) read into the folder so that load_tokenizer(folder) gives the same one, and beside
// it what belongs to the tokenizer for others: chat template, special tokens, a SentencePiece model.
void save_tokenizer(const std::string& what, const std::filesystem::path& folder);

}  // namespace trireme::data
