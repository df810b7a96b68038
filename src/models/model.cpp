#include "models/model.h"

namespace trireme {
namespace {

Chain make(const LlamaConfig& config, DType dtype) {
  return make_llama(config, dtype);
}
Chain make(const Gpt2Config& config, DType dtype) {
  return make_gpt2(config, dtype);
}

}  // namespace

Chain make_chain(const ModelConfig& config, DType compute_dtype) {
  return std::visit([compute_dtype](const auto& known) { return make(known, compute_dtype); }, config);
}

}  // namespace trireme
