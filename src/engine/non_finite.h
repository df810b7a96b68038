// Gradients that are not finite: which, and how to say it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "engine/model_state.h"

namespace trireme::engine {

struct NonFinite {
  std::string tensor;    // the first of them in the model's order; empty: all are finite, their norm is not
  int rank = -1;         // that found it: the first of those that hold a part of its sum; -1 without tensor
  int micro_batch = -1;  // the first whose loss is not finite, of the global order; -1: all losses are
  int micro_batch_rank = -1;
};

// "the gradient of lm_head.weight is not finite (found by rank 2), nor is the loss of micro-batch 5 (on rank 1)"
std::string to_string(const NonFinite& found);

// Among all logical tensors, in the order of the chain's parameters, the first with a gradient that is not finite in
// what this rank updates; -1: none.
std::int64_t first_non_finite(const Chain& chain, const std::vector<StorageGroup>& groups, const ModelState& state);

// The last element of the last gradient becomes infinite, or NaN in fp16: what the failpoint engine.gradient asks for.
void spoil_last(const std::vector<GradientPlace>& gradients);

const std::string& logical_name(const Chain& chain, std::int64_t index);

}  // namespace trireme::engine
