// The words of trireme::random_block (base/random.h) on a device, and dropout's masks made from them.
#pragma once
#include "kernels/cuda/kernel.cuh"

namespace trireme::kernels::cuda {

// Philox4x32-10.
__device__ inline uint4 random_words(std::uint64_t key, std::uint64_t stream, std::uint64_t index) {
  constexpr std::uint32_t kFirst = 0xD2511F53u, kSecond = 0xCD9E8D57u;
  uint4 c{static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
          static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)};
  auto key0 = static_cast<std::uint32_t>(key), key1 = static_cast<std::uint32_t>(key >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    c = {__umulhi(kSecond, c.z) ^ c.y ^ key0, kSecond * c.z, __umulhi(kFirst, c.x) ^ c.w ^ key1, kFirst * c.x};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return c;
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

  // What elements place, place + 16, + 32 and + 48 of a group are multiplied by; place is below 16.
  __device__ float4 factors(std::int64_t sample, std::int64_t group, int place) const {
    const uint4 words = random_words(keys[sample], stream, static_cast<std::uint64_t>(group * 16 + place));
    return {words.x < threshold ? 0.0f : factor, words.y < threshold ? 0.0f : factor,
            words.z < threshold ? 0.0f : factor, words.w < threshold ? 0.0f : factor};
  }
};

}  // namespace trireme::kernels::cuda
