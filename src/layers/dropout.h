// Dropout keyed by (sample, unit, element): the same key draws the same mask, in the backward as in the forward, on
// whatever rank.
#pragma once
#include "chain/unit.h"
#include "kernels/kernels.h"

namespace trireme {

// The batch's dropout; none where the batch has no keys (evaluation, generation).
kernels::Dropout dropout_of(const Batch& batch, double probability, std::uint64_t stream);
inline bool is_active(const kernels::Dropout& dropout) {
  return dropout.probability > 0;
}

// y = x dropped; y may be x. Forward, and backward of gradients. Element t * C + c of a sample's x [T, C].
void apply_dropout(const kernels::Dropout& dropout, const BatchShape& shape, const Tensor& x, const Tensor& y);

}  // namespace trireme
