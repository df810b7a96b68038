// Rotary position embedding, Hugging Face's convention: pairs (i, i + D/2) of each head.
#pragma once
#include <memory>
#include <vector>

#include "chain/unit.h"

namespace trireme {

// cos_sin[positions][D], shared by the blocks of a model.
using RopeTable = std::shared_ptr<const std::vector<float>>;
RopeTable make_rope_table(std::int64_t positions, std::int64_t D, double theta);

// Rotates the first `heads` heads of each row of x [N, row_stride] in place. positions [N].
void rope_forward(const Tensor& x, std::int64_t heads, std::int64_t D, const std::int32_t* positions,
                  const RopeTable& table);
// The gradient of that, in place: the rotation the other way.
void rope_backward(const Tensor& dx, std::int64_t heads, std::int64_t D, const std::int32_t* positions,
                   const RopeTable& table);

}  // namespace trireme
