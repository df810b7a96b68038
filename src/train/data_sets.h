// The data sets that a plan names, checked against what it says of them.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "config/plan.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "engine/engine.h"

namespace trireme::train {

// What data.split names. Errors: those of data::Dataset, TR2250 the data has another text field than data.text_field,
// TR2251 another tokenizer than data.tokenizer, TR4027 no such pad token.
data::Dataset open_training_data(const config::Plan& plan);

// What data.eval_split names, in samples of the same kind; none where training.eval_samples is 0, and where the data
// has no held-out share and the plan does not ask for another split.
std::unique_ptr<data::Dataset> open_evaluation_data(const config::Plan& plan, const data::Dataset& training);

// How this rank's batches are made.
data::LoaderOptions loader_options(const config::Plan& plan, const engine::EngineOptions& engine, int data_rank);

// What a person should know before the start: how many documents are cut.
std::vector<std::string> notices_of(const data::Dataset& dataset);

}  // namespace trireme::train
