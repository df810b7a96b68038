// The models that `trireme bench` runs: the shapes of well-known ones, as their makers published them, with random
// weights.
#pragma once
#include <string>
#include <vector>

#include "models/model.h"

namespace trireme::measure {

// "llama-1b", "gpt2-xl", "qwen2.5-7b", ...; Error TR2019 with all names where there is none of that name. RoPE's angles
// are made for sequences of T, not for all positions that the model is meant for.
ModelConfig known_model(const std::string& name, std::int64_t T);

std::string known_model_names();  // "llama-1b, llama-3b, ..."

std::vector<std::string> all_known_models();  // those that only tests run too

}  // namespace trireme::measure
