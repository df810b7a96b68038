// The held-out text in bits, by a bigram table that saw what a run saw.
#pragma once
#include <cstdint>

#include "data/dataset.h"

namespace trireme::baselines {

struct Coded {
  double bits = 0;
  std::uint64_t tokens = 0;  // labels that count, as in the model's evaluation
};

// Counts the labels of positions 0 .. num_positions - 1 of the order over train, each with the token before it as its
// context (so a sample's first label has one too); codes every label of heldout so. A position counts each time it
// comes, in a second epoch again.
Coded code_by_bigram(const data::Dataset& train, const data::SampleOrder& order, std::uint64_t num_positions,
                     const data::Dataset& heldout);

}  // namespace trireme::baselines
