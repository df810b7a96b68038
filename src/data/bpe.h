// Byte-pair merging inside one word.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
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
  // In order of rank; a later one of the same pair counts.
  explicit MergeTable(const std::vector<Merge>& merges);

  // Buffers that a thread keeps between calls.
  struct Workspace {
    struct Symbol {
      std::int32_t id, previous, next;  // places in symbols, -1 at the ends; id is kNoToken once merged into the left
    };
    std::vector<Symbol> symbols;
    std::vector<std::uint64_t> heap;  // rank << 32 | place of the left symbol
  };

  // Appends what is left of a word's first symbols (ids, fewer than 2^31) when nothing can be merged any more. Always
  // merges the pair of the lowest rank, the leftmost of equals. n log n in their number.
  void merge(std::span<const std::int32_t> symbols, Workspace& workspace, std::vector<std::int32_t>& ids) const;

 private:
  struct Slot {
    std::uint64_t pair;
    std::uint32_t rank;
    std::int32_t merged;
  };
  std::vector<Slot> slots_;  // open addressing, a power of two, at most two thirds full
  int shift_ = 0;

  const Slot* find(std::int32_t left, std::int32_t right) const;
  void merge_short(std::span<const std::int32_t> word, std::vector<std::int32_t>& ids) const;
  void merge_long(std::span<const std::int32_t> word, Workspace& workspace, std::vector<std::int32_t>& ids) const;
};

}  // namespace trireme::data
