#include "checkpoint/coverage.h"

#include <algorithm>
#include <map>

namespace trireme::checkpoint {
namespace {

constexpr std::int64_t kMaxNumel = std::int64_t{1} << 62;

std::string shown(const Box& box) {
  return "rows " + std::to_string(box.row_begin) + ".." + std::to_string(box.row_end) + ", columns " +
         std::to_string(box.column_begin) + ".." + std::to_string(box.column_end);
}

// Sweeps down the rows; the open boxes' column intervals are disjoint as long as no two boxes overlap, so a new one
// needs to be compared with its two neighbours only.
std::optional<std::string> overlap(const std::vector<Box>& by_begin) {
  std::vector<Box> by_end = by_begin;
  std::sort(by_end.begin(), by_end.end(), [](const Box& a, const Box& b) { return a.row_end < b.row_end; });
  std::map<std::int64_t, std::int64_t> open;  // column_begin -> column_end
  std::size_t closed = 0;
  for (const Box& box : by_begin) {
    for (; closed < by_end.size() && by_end[closed].row_end <= box.row_begin; ++closed) {
      open.erase(by_end[closed].column_begin);
    }
    const auto next = open.lower_bound(box.column_begin);
    const bool hits_next = next != open.end() && next->first < box.column_end;
    const bool hits_previous = next != open.begin() && std::prev(next)->second > box.column_begin;
    if (hits_next || hits_previous) return "the box of " + shown(box) + " overlaps another";
    open.emplace(box.column_begin, box.column_end);
  }
  return std::nullopt;
}

}  // namespace

std::optional<Box> matrix_of(std::span<const std::int64_t> shape) {
  std::int64_t numel = 1;
  for (const std::int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(numel, size, &numel) || numel > kMaxNumel) return std::nullopt;
  }
  if (shape.size() <= 1) return Box{0, 1, 0, numel};
  std::int64_t columns = 1;  // a first dimension of zero must not hide an overflow of the others
  for (const std::int64_t size : shape.subspan(1)) {
    if (__builtin_mul_overflow(columns, size, &columns) || columns > kMaxNumel) return std::nullopt;
  }
  return Box{0, shape[0], 0, columns};
}

std::optional<std::string> coverage_problem(std::vector<Box> boxes, const Box& whole) {
  for (const Box& box : boxes) {
    const bool inside = whole.row_begin <= box.row_begin && box.row_begin < box.row_end &&
                        box.row_end <= whole.row_end && whole.column_begin <= box.column_begin &&
                        box.column_begin < box.column_end && box.column_end <= whole.column_end;
    if (!inside) return "the box of " + shown(box) + " is empty or outside the tensor";
  }
  std::sort(boxes.begin(), boxes.end(), [](const Box& a, const Box& b) { return a.row_begin < b.row_begin; });
  if (const auto problem = overlap(boxes)) return problem;
  std::int64_t covered = 0;  // cannot overflow: disjoint boxes inside the whole
  for (const Box& box : boxes) covered += box.numel();
  if (covered != whole.numel()) {
    return std::to_string(whole.numel() - covered) + " of " + std::to_string(whole.numel()) + " elements are in no box";
  }
  return std::nullopt;
}

}  // namespace trireme::checkpoint
