#include "models/model.h"

namespace trireme {
namespace {

Chain make(const LlamaConfig& config, DType dtype, bool recompute_wide) {
  return make_llama(config, dtype, recompute_wide);
}
Chain make(const Gpt2Config& config, DType dtype, bool recompute_wide) {
  return make_gpt2(config, dtype, recompute_wide);
}

}  // namespace

Chain make_chain(const ModelConfig& config, DType compute_dtype, bool recompute_wide) {
  return std::visit([=](const auto& known) { return make(known, compute_dtype, recompute_wide); }, config);
}

}  // namespace trireme
