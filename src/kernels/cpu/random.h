// The words of trireme::random_block (base/random.h), many blocks at a time, and dropout's masks made from them.
#pragma once
#include "kernels/cpu/vector.h"

namespace trireme::kernels::TRIREME_LEVEL {
namespace {

using std::uint64_t;

constexpr int64_t kDropoutGroup = 64;  // elements: 16 blocks of four words

struct WordBlock {
  Register<uint32_t> word[4];
};

// Of the lower halves of lanes.
TRIREME_INLINE Register<uint64_t> wide_product(Register<uint64_t> a, Register<uint64_t> b) {
#if defined(__AVX512F__)
  return (Register<uint64_t>)_mm512_maskz_mul_epu32(0xff, (__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return (Register<uint64_t>)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#else
  return (Register<uint64_t>)_mm_mul_epu32((__m128i)a, (__m128i)b);
#endif
}

// Philox4x32-10 at the positions of a stream that `index` holds: a word lies in the lower half of its lane, where
// wide_product() takes it, and what is in the upper half means nothing.
struct WideWords {
  Register<uint64_t> word[4];
};
TRIREME_INLINE WideWords wide_blocks(uint64_t key, uint64_t stream, Register<uint64_t> index) {
  using Wide = Register<uint64_t>;
  const Wide factor0 = 0xD2511F53 - Wide{}, factor1 = 0xCD9E8D57 - Wide{};
  Wide c0 = index, c1 = index >> 32, c2 = stream - Wide{}, c3 = c2 >> 32;
  uint64_t key0 = key, key1 = key >> 32;
  for (int round = 0; round < 10; ++round) {
    const Wide product0 = wide_product(c0, factor0), product1 = wide_product(c2, factor1);
    c0 = product1 >> 32 ^ c1 ^ key0;
    c1 = product1;
    c2 = product0 >> 32 ^ c3 ^ key1;
    c3 = product0;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// Positions first, first + 1, ..., one a lane.
TRIREME_INLINE WordBlock random_blocks(uint64_t key, uint64_t stream, uint64_t first) {
  Register<uint64_t> index;
  for (unsigned i = 0; i < sizeof(index) / sizeof(uint64_t); ++i) index[i] = first + 2 * i;
  const WideWords even = wide_blocks(key, stream, index), odd = wide_blocks(key, stream, index + 1);
  WordBlock block;
  for (int w = 0; w < 4; ++w) {
    block.word[w] = (Register<uint32_t>)((even.word[w] & 0xffffffffu) | odd.word[w] << 32);
  }
  return block;
}

// What an element is multiplied by: 0 where its word is below threshold, else factor.
template <class S>
struct DropoutRule {
  uint64_t key, stream;
  uint32_t threshold;
  S factor;

  TRIREME_INLINE DropoutRule(const Dropout& dropout, int64_t sample)
      : key(dropout.keys[sample]),
        stream(dropout.stream),
        threshold(static_cast<uint32_t>(dropout.probability * 4294967296.0)),
        factor(static_cast<S>(1 / (1 - dropout.probability))) {}
};

// factors[0 .. 64) of the elements of one group.
TRIREME_INLINE void dropout_group(const DropoutRule<float>& rule, int64_t group, float* factors) {
  constexpr int kLanes = kRegisterBytes / 4;
  for (int part = 0; part < kParts; ++part) {
    const WordBlock block = random_blocks(rule.key, rule.stream, static_cast<uint64_t>(group * 16 + part * kLanes));
    for (int w = 0; w < 4; ++w) {
      const Register<float> zero = {};
      const Register<float> kept = block.word[w] < rule.threshold ? zero : rule.factor - zero;
      memcpy(factors + w * 16 + part * kLanes, &kept, sizeof(kept));
    }
  }
}
TRIREME_INLINE void dropout_group(const DropoutRule<double>& rule, int64_t group, double* factors) {
  constexpr int kLanes = kRegisterBytes / 4;
  for (int part = 0; part < kParts; ++part) {
    const WordBlock block = random_blocks(rule.key, rule.stream, static_cast<uint64_t>(group * 16 + part * kLanes));
    for (int w = 0; w < 4; ++w) {
      for (int i = 0; i < kLanes; ++i) {
        factors[w * 16 + part * kLanes + i] = block.word[w][i] < rule.threshold ? 0 : rule.factor;
      }
    }
  }
}

}  // namespace
}  // namespace trireme::kernels::TRIREME_LEVEL
