// Chains for the tests of this folder, small ones by hand and random ones by seed.
#pragma once
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "schedule/build.h"
#include "schedule/lower.h"
#include "schedule/schedule.h"

namespace trireme::schedule {

// Draws that are the same on every standard library.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed) {}
  int below(int n) { return static_cast<int>(engine_() % static_cast<std::uint64_t>(n)); }
  int between(int low, int high) { return low + below(high - low + 1); }
  bool chance(int percent) { return below(100) < percent; }

 private:
  std::mt19937_64 engine_;
};

// Moves what the chain allows to host memory: the state of all trainable groups, weights where a rank keeps no more
// than it updates, inputs that a recompute needs.
void offload(ChainSpec& chain, bool state, bool weights, bool inputs);

// All ranks' programs, lowered.
std::vector<Program> lower_all(const ChainSpec& chain, const Options& options);

// embed, `blocks` blocks, head. Tied: the head reads and gives gradients for the embedding's group.
ChainSpec make_small_chain(int blocks, bool tied);

struct Case {
  ChainSpec chain;
  Options options;
};

// Any pass; 1-6 units with sizes from nothing to large, tied and frozen groups, 1-4 ranks, up to 6 micro-batches, both
// ways to reduce, gradients that are added in place, 1-3 gradient slots, with and without a master apart, units that
// cost up to a million operations and bytes; in half of them state, weights or inputs are in host memory.
Case make_random_case(std::uint64_t seed);

// For messages: the numbers of a case.
std::string describe(const Case& random);

}  // namespace trireme::schedule
