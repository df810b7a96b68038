// Every architecture that there is, behind one name.
#pragma once
#include <variant>

#include "models/gpt2.h"
#include "models/llama.h"

namespace trireme {

using ModelConfig = std::variant<LlamaConfig, Gpt2Config>;

// make_llama() or make_gpt2(). recompute_wide: blocks do not keep the wide rows of the feed-forward network, the larger
// part of what they keep, but compute them again in the backward, to the same bits.
Chain make_chain(const ModelConfig& config, DType compute_dtype, bool recompute_wide = false);

}  // namespace trireme
