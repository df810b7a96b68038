#include "data/bpe_alphabet.h"

#include <algorithm>

#include "data/tokenizer_text.h"

namespace trireme::data {

Alphabet::Alphabet(const AlphabetSpec& spec)
    : kind_(spec.kind),
      byte_ids_(spec.byte_ids),
      byte_fallback_(spec.kind == AlphabetKind::characters && spec.byte_fallback),
      unknown_(spec.unknown),
      fuse_unknown_(spec.fuse_unknown) {
  const bool all_bytes = std::find(byte_ids_.begin(), byte_ids_.end(), kNoToken) == byte_ids_.end();
  keeps_all_ = unknown_ || (all_bytes && (byte_fallback_ || kind_ == AlphabetKind::bytes));
  for (const auto& [character, id] : spec.characters) {
    auto& page = pages_[character >> 8];
    if (!page) {
      page = std::make_unique<Page>();
      page->fill(kNoToken);
    }
    (*page)[character & 0xFF] = id;
  }
}

bool Alphabet::has_bytes(std::string_view character) const {
  return std::all_of(character.begin(), character.end(),
                     [&](char byte) { return byte_ids_[static_cast<unsigned char>(byte)] != kNoToken; });
}

void Alphabet::spell(std::string_view word, std::vector<std::int32_t>& symbols) const {
  symbols.clear();
  // An unknown character waits until the next known one, and bytes overtake it, as in Hugging Face's.
  bool unknown_waits = false;
  for (std::size_t at = 0; at < word.size();) {
    const auto lead = static_cast<unsigned char>(word[at]);
    const bool is_byte = kind_ == AlphabetKind::bytes;
    const std::size_t length = is_byte ? 1 : utf8_length(lead);
    const std::int32_t id = is_byte ? byte_ids_[lead] : character_id(code_point_at(word, at));
    const std::string_view character = word.substr(at, length);
    at += length;
    if (id != kNoToken) {
      if (unknown_waits) symbols.push_back(*unknown_);
      unknown_waits = false;
      symbols.push_back(id);
    } else if (byte_fallback_ && has_bytes(character)) {
      for (const char byte : character) symbols.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
    } else if (unknown_) {
      if (unknown_waits && !fuse_unknown_) symbols.push_back(*unknown_);
      unknown_waits = true;
    }
  }
  if (unknown_waits) symbols.push_back(*unknown_);
}

}  // namespace trireme::data
