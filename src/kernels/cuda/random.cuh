// The words of trireme::random_block (base/random.h) on a device, and dropout's masks made from them.
#pragma once
#include "kernels/cuda/kernel.cuh"

namespace trireme::kernels::cuda {

// Philox4x32-10: the words of n blocks from index on, a multiple of n.
template <int n>
__device__ void random_words(std::uint64_t key, std::uint64_t stream, std::uint64_t index, uint4 (&words)[n]) {
  constexpr std::uint32_t kFirst = 0xD2511F53u, kSecond = 0xCD9E8D57u;
#pragma unroll
  for (int i = 0; i < n; ++i) {
    words[i] = {static_cast<std::uint32_t>(index) + i, static_cast<std::uint32_t>(index >> 32),
                static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)};
  }
  auto key0 = static_cast<std::uint32_t>(key), key1 = static_cast<std::uint32_t>(key >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
#pragma unroll
    for (uint4& c : words) {
      const std::uint64_t second = std::uint64_t{kSecond} * c.z, first = std::uint64_t{kFirst} * c.x;
      c = {static_cast<std::uint32_t>(second >> 32) ^ c.y ^ key0, static_cast<std::uint32_t>(second),
           static_cast<std::uint32_t>(first >> 32) ^ c.w ^ key1, static_cast<std::uint32_t>(first)};
    }
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
}

constexpr std::int64_t kDropoutGroup = 64;  // elements: 16 blocks of four words

struct DropoutRule {
  const std::uint64_t* keys;  // null: nothing is dropped
  std::uint64_t stream;
  std::uint32_t threshold;
  float factor;

  explicit DropoutRule(const Dropout& dropout)
      : keys(dropout.probability == 0 ? nullptr : dropout.keys),
        stream(dropout.stream),
        threshold(static_cast<std::uint32_t>(dropout.probability * 4294967296.0)),
        factor(static_cast<float>(1 / (1 - dropout.probability))) {}

  __device__ float factor_of(std::uint32_t word) const { return word < threshold ? 0.0f : factor; }
  // The words of elements p, p + 16, + 32 and + 48 of a group, for n places p from `place` on, which is below 16 and a
  // multiple of n.
  template <int n>
  __device__ void draw(std::int64_t sample, std::int64_t group, int place, uint4 (&words)[n]) const {
    random_words(keys[sample], stream, static_cast<std::uint64_t>(group * 16 + place), words);
  }
  // The same as bits: 4 i + w says that the element of word w of place i is kept.
  template <int n>
  __device__ std::uint32_t kept(std::int64_t sample, std::int64_t group, int place) const {
    uint4 words[n];
    draw(sample, group, place, words);
    std::uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < n; ++i) {
      const std::uint32_t of_place[] = {words[i].x, words[i].y, words[i].z, words[i].w};
#pragma unroll
      for (int w = 0; w < 4; ++w) bits |= (of_place[w] < threshold ? 0u : 1u) << (4 * i + w);
    }
    return bits;
  }
  // What the elements of one place are multiplied by.
  __device__ float4 factors(std::int64_t sample, std::int64_t group, int place) const {
    uint4 words[1];
    draw(sample, group, place, words);
    return {factor_of(words[0].x), factor_of(words[0].y), factor_of(words[0].z), factor_of(words[0].w)};
  }
};

}  // namespace trireme::kernels::cuda
