// The first symbols of a word, from which merging starts: its bytes, or its characters.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "data/bpe.h"

namespace trireme::data {

enum class AlphabetKind : std::uint8_t {
  bytes,       // byte-level: one symbol a byte
  characters,  // one symbol a code point
};

struct AlphabetSpec {
  AlphabetKind kind = AlphabetKind::bytes;
  std::array<std::int32_t, 256>
      byte_ids{};  // bytes: each byte's token; characters: <0x00> .. <0xFF>, for byte_fallback
  std::vector<std::pair<char32_t, std::int32_t>> characters;
  bool byte_fallback = false;           // a character without a token becomes its bytes, where all of them have one
  std::optional<std::int32_t> unknown;  // else it becomes this; without one it is left out
  bool fuse_unknown = false;            // neighbours become one
};

// Immutable and thread-safe.
class Alphabet {
 public:
  explicit Alphabet(const AlphabetSpec& spec);

  // Replaces symbols by those of the word, which must be valid UTF-8 where symbols are characters.
  void spell(std::string_view word, std::vector<std::int32_t>& symbols) const;

  // Whether nothing is left out.
  bool keeps_all() const { return keeps_all_; }

  // The token of a character; kNoToken where there is none.
  std::int32_t character_id(char32_t c) const {
    const auto& page = pages_[c >> 8];
    return page ? (*page)[c & 0xFF] : kNoToken;
  }

 private:
  using Page = std::array<std::int32_t, 256>;

  AlphabetKind kind_;
  std::array<std::int32_t, 256> byte_ids_;
  std::array<std::unique_ptr<Page>, 0x1100> pages_;
  bool byte_fallback_;
  std::optional<std::int32_t> unknown_;
  bool fuse_unknown_;
  bool keeps_all_;

  bool has_bytes(std::string_view character) const;
};

}  // namespace trireme::data
