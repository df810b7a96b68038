// Every architecture that there is, behind one name.
#pragma once
#include <variant>

#include "models/gpt2.h"
#include "models/llama.h"

namespace trireme {

using ModelConfig = std::variant<LlamaConfig, Gpt2Config>;

// make_llama() or make_gpt2().
Chain make_chain(const ModelConfig& config, DType compute_dtype);

}  // namespace trireme
