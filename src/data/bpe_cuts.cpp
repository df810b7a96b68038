#include "data/bpe_cuts.h"

#include <algorithm>
#include <bit>

namespace trireme::data {

JoinTable::JoinTable(const std::vector<std::pair<char32_t, char32_t>>& joins) {
  const std::size_t size = std::bit_ceil(std::clamp<std::size_t>(joins.size() * 32, 1 << 10, 1 << 24));
  bits_.resize(size / 64);
  shift_ = 64 - std::countr_zero(size);
  for (const auto& [left, right] : joins) {
    if (left < 0x80 && right < 0x80) ascii_[left << 7 | right] = 1;
    const std::uint64_t bit = hash(left, right) >> shift_;
    bits_[bit >> 6] |= std::uint64_t{1} << (bit & 63);
  }
}

}  // namespace trireme::data
