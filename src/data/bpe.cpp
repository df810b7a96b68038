#include "data/bpe.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>

#include "base/error.h"

namespace trireme::data {
namespace {

constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
constexpr std::uint32_t kNoRank = ~std::uint32_t{0};
constexpr std::size_t kShortWord = 40;  // up to here a scan of all pairs beats the heap

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right);
}

std::uint64_t pair_hash(std::uint64_t key) {
  key ^= key >> 29;  // brings the left id's bits down to where the multiplication spreads them
  return key * 0x9E3779B97F4A7C15u;
}

}  // namespace

MergeTable::MergeTable(const std::vector<Merge>& merges) {
  const std::size_t capacity = std::bit_ceil(std::max<std::size_t>(16, merges.size() + merges.size() / 2));
  shift_ = 64 - std::countr_zero(capacity);
  slots_.assign(capacity, {kEmpty, kNoRank, kNoToken});
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const std::uint64_t key = pair_key(merges[rank].left, merges[rank].right);
    std::size_t i = pair_hash(key) >> shift_;
    while (slots_[i].pair != kEmpty && slots_[i].pair != key) i = (i + 1) & (capacity - 1);
    slots_[i] = {key, static_cast<std::uint32_t>(rank), merges[rank].merged};
  }
}

const MergeTable::Slot* MergeTable::find(std::int32_t left, std::int32_t right) const {
  const std::uint64_t key = pair_key(left, right);
  std::size_t i = pair_hash(key) >> shift_;
  while (slots_[i].pair != key) {
    if (slots_[i].pair == kEmpty) return nullptr;
    i = (i + 1) & (slots_.size() - 1);
  }
  return &slots_[i];
}

void MergeTable::merge(std::span<const std::int32_t> symbols, Workspace& workspace,
                       std::vector<std::int32_t>& ids) const {
  if (symbols.size() <= kShortWord) {
    merge_short(symbols, ids);
  } else {
    merge_long(symbols, workspace, ids);
  }
}

void MergeTable::merge_short(std::span<const std::int32_t> word, std::vector<std::int32_t>& ids) const {
  std::array<std::int32_t, kShortWord> symbols;
  std::array<std::uint32_t, kShortWord> ranks;  // of the pair that begins here; the last has none
  std::array<std::int32_t, kShortWord> merged;
  std::size_t count = word.size();
  std::copy(word.begin(), word.end(), symbols.begin());
  const auto look_up = [&](std::size_t i) {
    const Slot* slot = find(symbols[i], symbols[i + 1]);
    ranks[i] = slot != nullptr ? slot->rank : kNoRank;
    if (slot != nullptr) merged[i] = slot->merged;
  };
  for (std::size_t i = 0; i + 1 < count; ++i) look_up(i);
  while (count > 1) {
    const std::size_t best = std::min_element(ranks.begin(), ranks.begin() + (count - 1)) - ranks.begin();
    if (ranks[best] == kNoRank) break;
    symbols[best] = merged[best];
    std::copy(symbols.begin() + best + 2, symbols.begin() + count, symbols.begin() + best + 1);
    std::copy(ranks.begin() + best + 1, ranks.begin() + (count - 1), ranks.begin() + best);
    std::copy(merged.begin() + best + 1, merged.begin() + (count - 1), merged.begin() + best);
    --count;
    if (best + 1 < count) look_up(best);
    if (best > 0) look_up(best - 1);
  }
  ids.insert(ids.end(), symbols.begin(), symbols.begin() + count);
}

void MergeTable::merge_long(std::span<const std::int32_t> word, Workspace& workspace,
                            std::vector<std::int32_t>& ids) const {
  TRIREME_CHECK(word.size() < (std::size_t{1} << 31), "a word of 2^31 symbols");
  auto& symbols = workspace.symbols;
  auto& heap = workspace.heap;
  heap.clear();
  symbols.resize(word.size());
  for (std::size_t i = 0; i < word.size(); ++i) {
    const auto at = static_cast<std::int32_t>(i);
    symbols[i] = {word[i], at - 1, at + 1};
  }
  symbols.back().next = -1;
  const auto later = std::greater<>();
  const auto find_pair = [&](std::int32_t left) { return find(symbols[left].id, symbols[symbols[left].next].id); };
  const auto candidate = [](std::uint32_t rank, std::int32_t left) {
    return static_cast<std::uint64_t>(rank) << 32 | static_cast<std::uint32_t>(left);
  };
  const auto push = [&](std::int32_t left) {
    const Slot* pair = find_pair(left);
    if (pair == nullptr) return;
    heap.push_back(candidate(pair->rank, left));
    std::push_heap(heap.begin(), heap.end(), later);
  };
  for (std::int32_t i = 0; symbols[i].next >= 0; ++i) {
    if (const Slot* pair = find_pair(i)) heap.push_back(candidate(pair->rank, i));
  }
  std::make_heap(heap.begin(), heap.end(), later);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const auto rank = static_cast<std::uint32_t>(heap.back() >> 32);
    const auto at = static_cast<std::int32_t>(heap.back() & 0xFFFFFFFF);
    heap.pop_back();
    auto& left = symbols[at];
    if (left.id == kNoToken || left.next < 0) continue;
    const Slot* pair = find_pair(at);
    if (pair == nullptr || pair->rank != rank) continue;  // overtaken
    auto& right = symbols[left.next];
    left.id = pair->merged;
    left.next = right.next;
    right.id = kNoToken;
    if (left.next >= 0) {
      symbols[left.next].previous = at;
      push(at);
    }
    if (left.previous >= 0) push(left.previous);
  }
  for (std::int32_t i = 0; i >= 0; i = symbols[i].next) ids.push_back(symbols[i].id);
}

}  // namespace trireme::data
