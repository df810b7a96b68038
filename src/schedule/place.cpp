#include "schedule/place.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace trireme::schedule {
namespace {

std::vector<int> order_by(std::size_t count, const std::function<double(int)>& key) {
  std::vector<double> keys(count);
  for (std::size_t i = 0; i < count; ++i) keys[i] = key(static_cast<int>(i));
  std::vector<int> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return keys[a] < keys[b]; });
  return order;
}

// neighbours[i]: the buffers that live at some time when i does.
std::vector<std::vector<int>> find_neighbours(std::span<const Lifetime> lifetimes) {
  std::vector<std::vector<int>> neighbours(lifetimes.size());
  std::vector<int> alive;
  for (const int i : order_by(lifetimes.size(), [&](int k) { return lifetimes[k].begin; })) {
    std::erase_if(alive, [&](int k) { return lifetimes[k].end < lifetimes[i].begin; });
    for (const int k : alive) {
      neighbours[i].push_back(k);
      neighbours[k].push_back(i);
    }
    alive.push_back(i);
  }
  return neighbours;
}

// Each buffer in turn goes to the lowest gap that its placed neighbours leave.
Placement first_fit(std::span<const Lifetime> lifetimes, const std::vector<std::vector<int>>& neighbours,
                    std::span<const int> order) {
  Placement placement{std::vector<std::int64_t>(lifetimes.size(), -1), 0};
  std::vector<std::pair<std::int64_t, std::int64_t>> taken;
  for (const int i : order) {
    taken.clear();
    for (const int k : neighbours[i]) {
      const std::int64_t offset = placement.offsets[k];
      if (offset >= 0) taken.emplace_back(offset, offset + align_place(lifetimes[k].bytes));
    }
    std::sort(taken.begin(), taken.end());
    std::int64_t offset = 0;
    for (const auto& [begin, end] : taken) {
      if (begin - offset >= lifetimes[i].bytes) break;
      offset = std::max(offset, end);
    }
    placement.offsets[i] = offset;
    placement.bytes = std::max(placement.bytes, offset + align_place(lifetimes[i].bytes));
  }
  return placement;
}

}  // namespace

std::int64_t max_live_bytes(std::span<const Lifetime> lifetimes) {
  int last = 0;
  for (const Lifetime& lifetime : lifetimes) last = std::max(last, lifetime.end);
  std::vector<std::int64_t> change(last + 2, 0);
  for (const Lifetime& lifetime : lifetimes) {
    change[lifetime.begin] += align_place(lifetime.bytes);
    change[lifetime.end + 1] -= align_place(lifetime.bytes);
  }
  std::int64_t live = 0, most = 0;
  for (const std::int64_t delta : change) most = std::max(most, live += delta);
  return most;
}

Placement place(std::span<const Lifetime> lifetimes) {
  const auto neighbours = find_neighbours(lifetimes);
  const std::int64_t bound = max_live_bytes(lifetimes);
  const auto duration = [&](int i) { return lifetimes[i].end - lifetimes[i].begin + 1.0; };
  const auto bytes = [&](int i) { return static_cast<double>(lifetimes[i].bytes); };
  // Forward's products live in a stack's order, which birth and duration keep; slots and workspaces of very different
  // sizes pack best by size.
  const std::function<double(int)> keys[] = {[&](int i) { return -bytes(i); }, [&](int i) { return -duration(i); },
                                             [&](int i) { return -bytes(i) * duration(i); },
                                             [&](int i) { return lifetimes[i].begin; }};
  Placement best;
  for (const auto& key : keys) {
    Placement candidate = first_fit(lifetimes, neighbours, order_by(lifetimes.size(), key));
    if (best.offsets.empty() || candidate.bytes < best.bytes) best = std::move(candidate);
    if (best.bytes == bound) break;
  }
  return best;
}

}  // namespace trireme::schedule
