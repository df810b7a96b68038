// A forward pass that keeps nothing: evaluation and generation.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "chain/chain.h"

namespace trireme {

// What the head then works on.
struct HeadInput {
  std::vector<Tensor> boundary;
  std::byte* workspace = nullptr;  // enough for the head's loss and logits
};

// Bytes of memory that forward_to_head() needs for batches of at most this shape.
std::int64_t forward_bytes(const Chain& chain, const BatchShape& shape);

// Runs every unit but the head, with two boundaries that take turns. parameters[u] are unit u's views. memory holds
// forward_bytes() of the batch's shape or a larger one, and carries the result.
HeadInput forward_to_head(const Chain& chain, const Batch& batch, std::span<const std::vector<Tensor>> parameters,
                          std::byte* memory);

}  // namespace trireme
