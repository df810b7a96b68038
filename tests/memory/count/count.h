// Every byte that this process asks the system's allocators for, by who asks: malloc and its kin, and anonymous mmap
// outside of the C library.
#pragma once
#include <cstdint>

namespace trireme::testing {

// false: a sanitizer's allocator is in the way, and nothing below counts.
bool counts_memory();

// The calling thread's allocations from here on are those of this rank; threads of which nobody said so share kShared.
inline constexpr int kShared = 0, kMostRanks = 8;
void count_for_rank(int rank);  // 0 .. kMostRanks - 1

struct Counted {
  std::int64_t mapped = 0;   // anonymous mmap
  std::int64_t library = 0;  // asked for by LibTorch and what is in it
  std::int64_t other = 0;
  std::int64_t sum() const { return mapped + library + other; }
};

Counted counted_now(int rank);  // rank -1: kShared
// At the moment since forget_most() at which the sum was largest.
Counted counted_most(int rank);
void forget_most();

}  // namespace trireme::testing
