// A forward pass that keeps nothing: evaluation and generation.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "chain/chain.h"

namespace trireme {

// What the head then works on.
struct HeadInput {
  std::vector<Tensor> boundary;
  std::byte* workspace = nullptr;  // enough for the head's loss and logits
};

// What the units keep of one sequence while it grows, in memory of cache_bytes(chain, tokens) for as many tokens as it
// will ever have, where the units run. Holds nothing itself.
class SequenceCache {
 public:
  SequenceCache(const Chain& chain, std::int64_t tokens, std::byte* memory);
  std::byte* of_unit(std::size_t unit) const { return places_[unit]; }

 private:
  std::vector<std::byte*> places_;
};
std::int64_t cache_bytes(const Chain& chain, std::int64_t tokens);
// Batch::caches of rows that have these.
std::vector<std::byte*> places_in(const Chain& chain, std::span<const SequenceCache* const> caches);

// Bytes of memory that forward_to_head() needs for batches of at most this shape.
std::int64_t forward_bytes(const Chain& chain, const BatchShape& shape);

// Runs every unit but the head, with two boundaries that take turns. parameters[u] are unit u's views. memory holds
// forward_bytes() of the batch's shape or a larger one, and carries the result.
HeadInput forward_to_head(const Chain& chain, const Batch& batch, std::span<const std::vector<Tensor>> parameters,
                          std::byte* memory);

// The same where a unit's parameters are only there when they are asked for: parameters_of(u) is called right before
// unit u runs, and its views hold until the next call.
using ParametersOf = std::function<std::vector<Tensor>(std::size_t unit)>;
HeadInput forward_to_head(const Chain& chain, const Batch& batch, const ParametersOf& parameters_of, std::byte* memory);

}  // namespace trireme
