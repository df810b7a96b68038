// Places buffers with known lifetimes in one arena, so that no two that live at the same time share a byte.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace trireme::schedule {

inline constexpr std::int64_t kPlaceAlignment = 256;  // bytes

constexpr std::int64_t align_place(std::int64_t bytes) {
  return (bytes + kPlaceAlignment - 1) / kPlaceAlignment * kPlaceAlignment;
}

struct Lifetime {
  int begin = 0, end = 0;  // first and last instruction that need it, both included
  std::int64_t bytes = 0;
};

struct Placement {
  std::vector<std::int64_t> offsets;  // multiples of kPlaceAlignment
  std::int64_t bytes = 0;             // end of the highest buffer
};

// Pure and deterministic. The best of a few greedy colourings; not always the optimum, which is NP-hard.
Placement place(std::span<const Lifetime> lifetimes);

// The most bytes that live at one time: no placement can be smaller.
std::int64_t max_live_bytes(std::span<const Lifetime> lifetimes);

}  // namespace trireme::schedule
