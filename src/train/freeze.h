// training.freeze: which parameters of a model are not trained.
#pragma once
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "engine/model_state.h"
#include "train/resolve.h"

namespace trireme::train {

// The chain that the run trains, with ParameterSpec::trainable as run.freeze says; a notice counts what is frozen.
// Throws Error TR2291 where a pattern matches no tensor or all are frozen, TR2292 where of several tensors that are
// stored as one matrix (queries, keys and values; gate and up) some are frozen and some are not.
Chain make_training_chain(const ResolvedRun& run, std::vector<std::string>& notices);

// Throws Error TR2224 where a checkpoint lacks the optimizer's state of a tensor that is trained, or has that of one
// that is not.
void check_frozen(const checkpoint::Manifest& manifest, const Chain& chain, const engine::ModelState& state);

}  // namespace trireme::train
