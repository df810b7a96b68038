// Where the attention kernel puts its blocks: shared by the kernel and by attention_workspace(), so that they agree.
#pragma once
#include <cstdint>

#include "kernels/kernels.h"

namespace trireme::kernels {
namespace {

// Query rows of a task: fewer for long sequences, so that a block of scores stays in the second-level cache.
constexpr std::int64_t kAttentionLong = 2048, kAttentionLonger = 8192;
constexpr std::int64_t attention_block_rows(std::int64_t T) {
  return T <= kAttentionLong ? kAttentionMaxRows : T <= kAttentionLonger ? 32 : 16;
}

// Distance between rows of scores: whole vectors, so that a row's last one may be masked in place.
constexpr std::int64_t attention_row_stride(std::int64_t keys) {
  return (keys + 15) / 16 * 16;
}

// Elements of a block of scores, for sequences of T or shorter ones, which may have larger blocks.
constexpr std::int64_t attention_block(std::int64_t T) {
  const std::int64_t own = attention_block_rows(T) * attention_row_stride(T);
  if (T <= kAttentionLong) return own;
  const std::int64_t shorter = attention_block(T <= kAttentionLonger ? kAttentionLong : kAttentionLonger);
  return own < shorter ? shorter : own;
}

// Elements of a row of dropout's factors: whole groups of 64 around up to T keys that begin anywhere.
constexpr std::int64_t attention_dropout_row(std::int64_t T) {
  return (T + 63) / 64 * 64 + 128;
}

// Byte offsets of one thread's part, each a multiple of 64. What only the backward uses comes last and, for a forward,
// has no bytes.
struct AttentionWorkspace {
  std::int64_t scores, weights, head, factors, gradients, weight_gradients, dk, dv, bytes;

  constexpr AttentionWorkspace(std::int64_t T, std::int64_t D, std::int64_t element_bytes, bool backward) {
    const std::int64_t accumulator_bytes = element_bytes == 8 ? 8 : 4;
    const std::int64_t block = attention_block(T);
    auto next = [end = std::int64_t{0}](std::int64_t size) mutable {
      const std::int64_t offset = end;
      end += (size + 63) / 64 * 64;
      return offset;
    };
    scores = next(block * accumulator_bytes);
    weights = next(block * element_bytes);
    head = next(kAttentionMaxRows * D * accumulator_bytes);
    factors = next(attention_dropout_row(T) * accumulator_bytes);
    const std::int64_t used = backward ? 1 : 0;
    gradients = next(used * block * accumulator_bytes);
    weight_gradients = next(used * block * element_bytes);
    dk = next(used * T * D * accumulator_bytes);
    dv = next(used * T * D * accumulator_bytes);
    bytes = next(0);
  }
};

}  // namespace
}  // namespace trireme::kernels
