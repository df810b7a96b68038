// Where a text can be cut so that BPE gives the same ids to the parts as to the whole.
//
// Tokenizers of SentencePiece's kind do not split text into words, so that a whole document is one word. But a merge
// joins two tokens of which the left ends with one character and the right begins with another; where no merge has the
// two characters of a place, no token spans it. So the text falls into parts about as short as words, most of them seen
// before.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::data {

// Immutable and thread-safe.
class JoinTable {
 public:
  // joins: the last character of the left token and the first of the right one, of every merge.
  explicit JoinTable(const std::vector<std::pair<char32_t, char32_t>>& joins);

  // False only where no merge can join the two. True now and then where none does.
  bool may_join(char32_t left, char32_t right) const {
    if (left < 0x80 && right < 0x80) return ascii_[left << 7 | right] != 0;
    const std::uint64_t bit = hash(left, right) >> shift_;
    return (bits_[bit >> 6] >> (bit & 63) & 1) != 0;
  }

 private:
  std::array<char, 128 * 128> ascii_{};
  std::vector<std::uint64_t> bits_;  // a set of hashes, a power of two of bits
  int shift_;

  static std::uint64_t hash(char32_t left, char32_t right) {
    return (static_cast<std::uint64_t>(left) << 21 | right) * 0x9E3779B97F4A7C15u;
  }
};

}  // namespace trireme::data
