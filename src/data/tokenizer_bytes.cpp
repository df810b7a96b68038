#include "base/error.h"
#include "base/hash.h"
#include "data/tokenizer_files.h"

namespace trireme::data {
namespace {

constexpr std::int32_t kEndOfDocument = 256;
constexpr std::string_view kEndOfDocumentText = "<|endoftext|>";

// Id = byte. The end-of-document id cannot come from text, so text that spells it stays text.
class ByteTokenizer final : public Tokenizer {
 public:
  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) ids[i] = static_cast<unsigned char>(text[i]);
    return ids;
  }

  void decode_next(std::int32_t id, bool skip_special, DecodeState& state, std::string& text) const override {
    if (!has(id)) {
      throw Error(4110, "byte tokenizer", "id " + std::to_string(id) + " is not in 0 .. 256",
                  "decode with the tokenizer that made these ids");
    }
    ++state.tokens;
    if (id < kEndOfDocument) {
      text.push_back(static_cast<char>(id));
    } else if (!skip_special) {
      text.append(kEndOfDocumentText);
    }
  }

  std::int64_t vocabulary() const override { return kEndOfDocument + 1; }
  bool has(std::int32_t id) const override { return id >= 0 && id <= kEndOfDocument; }
  std::int32_t end_of_document() const override { return kEndOfDocument; }
  const SpecialTokens& special() const override { return special_; }
  const std::string& digest() const override { return digest_; }
  const std::string& kind() const override { return kind_; }

 private:
  std::string kind_ = "bytes";
  SpecialTokens special_{.end = kEndOfDocument};
  std::string digest_ = trireme::digest("trireme byte tokenizer, 257 ids, version 1");
};

}  // namespace

std::unique_ptr<Tokenizer> make_byte_tokenizer() {
  return std::make_unique<ByteTokenizer>();
}

}  // namespace trireme::data
