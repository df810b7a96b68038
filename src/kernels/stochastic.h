// Stochastic rounding to bf16, one formula for all levels and devices: up with the probability that the bits which do
// not fit make up of a unit, so that what is added in many small parts is not lost.
#pragma once
#include "base/random_formulas.h"
#include "kernels/kernels.h"

namespace trireme::kernels {

#ifdef __CUDACC__
#define TRIREME_FORMULA __host__ __device__ __forceinline__
#else
#define TRIREME_FORMULA [[gnu::always_inline]] inline
#endif

enum class StateArray : std::uint8_t { master, m, v };
constexpr int kOfBlock = 8;  // elements that share a block of random numbers, 16 bits each

// The block of elements i .. i + 7 of a run, i a multiple of 8: where it lies in which stream of r.seed.
TRIREME_FORMULA std::uint64_t random_stream(const StochasticRounding& r, StateArray array) {
  return r.stream + static_cast<std::uint64_t>(array);
}
TRIREME_FORMULA std::uint64_t random_index(const StochasticRounding& r, std::int64_t i) {
  return r.step << 36 | static_cast<std::uint64_t>(r.first + i) / kOfBlock;
}
TRIREME_FORMULA random_formulas::Words random_words(const StochasticRounding& r, StateArray array, std::int64_t i) {
  return random_formulas::philox(r.seed, random_stream(r, array), random_index(r, i));
}

// x as a bf16's bits; random: the element's 16 bits, the first element's are the block's lowest.
TRIREME_FORMULA std::uint16_t round_stochastically(float x, std::uint16_t random) {
  const auto bits = __builtin_bit_cast(std::uint32_t, x);
  const bool is_finite = (bits & 0x7f800000u) != 0x7f800000u;
  const std::uint32_t quiet = (bits & 0x007fffffu) != 0 ? 0x00400000u : 0;  // a NaN stays one without its lower bits
  return static_cast<std::uint16_t>((is_finite ? bits + random : bits | quiet) >> 16);
}
// The same of element number `place` of the block that the words are.
TRIREME_FORMULA std::uint16_t round_stochastically(float x, const random_formulas::Words& words, int place) {
  const std::uint64_t word = place < 4 ? words.first : words.second;
  return round_stochastically(x, static_cast<std::uint16_t>(word >> (place % 4 * 16)));
}

#undef TRIREME_FORMULA

}  // namespace trireme::kernels
