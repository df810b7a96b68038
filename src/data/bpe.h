// Byte-pair merging inside one word.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::data {

constexpr std::int32_t kNoToken = -1;

struct Merge {
  std::int32_t left, right;  // ids
  std::int32_t merged;
};

// Immutable and thread-safe.
class MergeTable {
 public:
  // byte_ids: the token of each byte, kNoToken where the vocabulary lacks it: such a byte becomes `unknown` if there is
  // one, else it is left out, as in Hugging Face's. merges: in order of rank; a later one of the same pair counts.
  MergeTable(const std::array<std::int32_t, 256>& byte_ids, std::optional<std::int32_t> unknown,
             const std::vector<Merge>& merges);

  // Buffers that a thread keeps between calls.
  struct Workspace {
    struct Symbol {
      std::int32_t id, previous, next;  // places in symbols, -1 at the ends; id is kNoToken once merged into the left
    };
    struct Candidate {
      std::uint32_t rank;
      std::int32_t left, merged;
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
  };

  // Appends the word's ids. Always merges the pair of the lowest rank, the leftmost of equals. n log n in its length.
  void encode(std::string_view word, Workspace& workspace, std::vector<std::int32_t>& ids) const;

 private:
  struct Slot {
    std::uint64_t pair;
    std::uint32_t rank;
    std::int32_t merged;
  };
  std::array<std::int32_t, 256> byte_ids_;
  std::vector<Slot> slots_;  // open addressing, a power of two, at most two thirds full
  int shift_ = 0;

  const Slot* find(std::int32_t left, std::int32_t right) const;
  void encode_short(std::string_view word, std::vector<std::int32_t>& ids) const;
  void encode_long(std::string_view word, Workspace& workspace, std::vector<std::int32_t>& ids) const;
};

}  // namespace trireme::data
