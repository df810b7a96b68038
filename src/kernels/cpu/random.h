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

// Philox4x32-10 at positions first, first + 1, ... of a stream, one a lane.
TRIREME_INLINE WordBlock random_blocks(uint64_t key, uint64_t stream, uint64_t first) {
  using Words = Register<uint32_t>;
  typedef uint64_t Wide __attribute__((vector_size(2 * kRegisterBytes)));
  constexpr int kLanes = kRegisterBytes / 4;
  Words c0, c1, c2 = {}, c3 = {};
  for (int i = 0; i < kLanes; ++i) {
    c0[i] = static_cast<uint32_t>(first + i);
    c1[i] = static_cast<uint32_t>((first + i) >> 32);
  }
  c2 += static_cast<uint32_t>(stream);
  c3 += static_cast<uint32_t>(stream >> 32);
  uint32_t key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const Wide product0 = __builtin_convertvector(c0, Wide) * uint64_t{0xD2511F53u};
    const Wide product1 = __builtin_convertvector(c2, Wide) * uint64_t{0xCD9E8D57u};
    c0 = __builtin_convertvector(product1 >> 32, Words) ^ c1 ^ key0;
    c1 = __builtin_convertvector(product1, Words);
    c2 = __builtin_convertvector(product0 >> 32, Words) ^ c3 ^ key1;
    c3 = __builtin_convertvector(product0, Words);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
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
