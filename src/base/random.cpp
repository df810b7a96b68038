#include "base/random.h"

#include <bit>

#include "base/error.h"
#include "base/hash.h"
#include "base/random_formulas.h"

namespace trireme {

using namespace random_formulas;

std::uint64_t stream_id(std::string_view name) {
  return hash64(name);
}

std::array<std::uint32_t, 4> random_block(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  const Words words = philox(seed, stream, index);
  return {low(words.first), high(words.first), low(words.second), high(words.second)};
}

std::uint64_t random_u64(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  const Words words = philox(seed, stream, index >> 1);
  return (index & 1) == 0 ? words.first : words.second;
}

double random_uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  return to_uniform(random_u64(seed, stream, index));
}

double random_normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  return normal_quantile(random_uniform(seed, stream, index));
}

double normal_quantile(double p) {
  return quantile(p);
}

std::uint64_t permute(std::uint64_t seed, std::uint64_t stream, std::uint64_t n, std::uint64_t index) {
  TRIREME_CHECK(index < n, "permute: index must be below n");
  constexpr std::uint64_t kRounds = 12;
  const int bits = std::bit_width(n - 1);
  const int right_bits = bits / 2, left_bits = bits - right_bits;  // each at most 32
  const std::uint64_t left_mask = (1ull << left_bits) - 1, right_mask = (1ull << right_bits) - 1;
  // Blocks of the same stream that are drawn as plain numbers must not be the round keys.
  const std::uint64_t round_stream = stream ^ 0x7065726d75746521ull;
  do {  // the network permutes 0 .. 2^bits - 1; walking its cycle until below n ends, for index itself is below n
    std::uint64_t left = index >> right_bits, right = index & right_mask;
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      const std::uint64_t input = round % 2 == 0 ? right : left;
      const std::uint64_t word = random_block(seed, round_stream, round << 32 | input)[0];
      if (round % 2 == 0) {
        left ^= word & left_mask;
      } else {
        right ^= word & right_mask;
      }
    }
    index = left << right_bits | right;
  } while (index >= n);
  return index;
}

}  // namespace trireme
