// The formulas of the layers and of whole models, written plainly with LibTorch's operators in fp64 and differentiated
// by its autograd: what the kernels and units are compared with. No torch in this header.
#pragma once
#include <cstdint>
#include <vector>

#include "layers/attention.h"
#include "layers/mlp.h"
#include "models/model.h"

namespace trireme::parity {

struct Value {
  std::vector<std::int64_t> sizes;
  std::vector<double> data;
};

// A function's value, and the gradient of sum(value * dy) with respect to each input.
struct Derivative {
  Value value;
  std::vector<Value> gradients;
};

Derivative linear(const Value& x, const Value& w, const Value& dy);
Derivative rmsnorm(const Value& x, const Value& w, double eps, const Value& dy);
Derivative rope(const Value& x, std::int64_t heads, std::int64_t D, double theta,
                const std::vector<std::int32_t>& positions, const Value& dy);
Derivative layernorm(const Value& x, const Value& w, const Value& b, double eps, const Value& dy);
Derivative biased_linear(const Value& x, const Value& w, const Value& b, const Value& dy);  // w [I, O]
Derivative attention(const AttentionShape& shape, const kernels::Dropout& dropout, const Value& qkv,
                     const std::vector<std::int32_t>& starts, const Value& dy);
Derivative mlp(const MlpKind& kind, const Value& x, const Value& up, const Value& down, const Value& dy);
Derivative embedding(const std::vector<std::int32_t>& ids, const Value& w, const Value& dy);
// The sum over rows with a label of the cross-entropy of hidden @ weight^T's first V columns.
Derivative loss_head(const Value& hidden, const Value& weight, std::int64_t V, const std::vector<std::int32_t>& labels,
                     double soft_cap, double dy);

// Side inputs of a micro-batch.
struct Inputs {
  BatchShape shape;
  std::vector<std::int32_t> ids, labels, positions, starts;
  std::vector<std::uint64_t> dropout_keys;  // empty: nothing is dropped
  Batch batch() const {
    return {shape,         ids.data(),
            labels.data(), positions.data(),
            starts.data(), dropout_keys.empty() ? nullptr : dropout_keys.data()};
  }
};
// head_dim must be set; the block is layer 0. parameters in the order of the unit; gradients: of the input, then of the
// parameters.
Derivative block(const LlamaConfig& config, const Inputs& inputs, const Value& x, const std::vector<Value>& parameters,
                 const Value& dy);
Derivative head(const LlamaConfig& config, const Inputs& inputs, const Value& x, const std::vector<Value>& parameters,
                double dy);
// The whole model's loss; parameters and gradients in the order of Chain::parameters. Frozen ones, of which
// requires_grad is false, have gradients of zero.
Derivative llama(const LlamaConfig& config, const Inputs& inputs, const std::vector<Value>& parameters, double dy,
                 const std::vector<bool>& frozen = {});
Derivative gpt2(const Gpt2Config& config, const Inputs& inputs, const std::vector<Value>& parameters, double dy,
                const std::vector<bool>& frozen = {});
// [B, V] at one position a row.
Value logits(const LlamaConfig& config, const Inputs& inputs, const std::vector<Value>& parameters,
             const std::vector<std::int64_t>& positions);

}  // namespace trireme::parity
