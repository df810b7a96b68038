#include <algorithm>
#include <cstring>

#include "layers/linear.h"
#include "layers/mlp.h"
#include "layers/norm.h"
#include "models/llama_units.h"

namespace trireme {
namespace {

// The order of LlamaBlock's parameters.
enum : std::size_t { kNorm1, kQkv, kAttentionOutput, kNorm2, kGateUp, kDown };

void copy(const Tensor& from, const Tensor& to) {
  std::memcpy(to.data, from.data, from.bytes());
}

}  // namespace

AttentionShape LlamaBlock::attention_shape(const BatchShape& shape) const {
  const LlamaConfig& c = facts_.config;
  return {shape.batch, shape.sequence, c.num_heads, c.num_key_value_heads, c.head_dim};
}

LlamaBlock::Saved LlamaBlock::place_saved(MemoryLayout& memory, const BatchShape& shape) const {
  const LlamaConfig& c = facts_.config;
  const AttentionShape a = attention_shape(shape);
  const std::int64_t N = shape.tokens();
  Saved saved;
  saved.qkv = memory.place(facts_.dtype, {N, a.qkv_width()});
  saved.attention = memory.place(facts_.dtype, {N, a.H * a.D});
  saved.lse = memory.place(accumulator_of(facts_.dtype), {a.B, a.H, a.T});
  saved.residual = memory.place(facts_.dtype, {N, c.hidden_size});
  saved.gate_up = memory.place(facts_.dtype, {N, 2 * c.intermediate_size});
  return saved;
}

LlamaBlock::Workspace LlamaBlock::place_workspace(MemoryLayout& memory, Phase phase, const BatchShape& shape) const {
  const LlamaConfig& c = facts_.config;
  const AttentionShape a = attention_shape(shape);
  const std::int64_t N = shape.tokens();
  Workspace w;
  w.normed = memory.place(facts_.dtype, {N, c.hidden_size});
  w.rstd = memory.place(accumulator_of(facts_.dtype), {N});
  w.activated = memory.place(facts_.dtype, {N, c.intermediate_size});
  w.attention = memory.place(DType::u8, {attention_workspace_bytes(a, facts_.dtype, facts_.threads)});
  if (phase == Phase::backward) {
    w.dnormed = memory.place(facts_.dtype, {N, c.hidden_size});
    w.dqkv = memory.place(facts_.dtype, {N, a.qkv_width()});
    w.dattention = memory.place(facts_.dtype, {N, a.H * a.D});
    w.dgate_up = memory.place(facts_.dtype, {N, 2 * c.intermediate_size});
  }
  return w;
}

UnitCost LlamaBlock::describe(Phase phase, const BatchShape& shape) const {
  const LlamaConfig& c = facts_.config;
  const AttentionShape a = attention_shape(shape);
  const double N = static_cast<double>(shape.tokens());
  const double weights = static_cast<double>(c.hidden_size * (a.qkv_width() + a.H * a.D + 3 * c.intermediate_size));
  // A query meets half of the keys on average: a product over them costs 2 * D * T / 2 a head. Forward has two,
  // backward five (the scores again, and four gradients).
  const double attention = N * static_cast<double>(a.T * a.H * a.D);
  MemoryLayout saved, workspace;
  place_saved(saved, shape);
  place_workspace(workspace, phase, shape);
  const bool forward = phase == Phase::forward;
  UnitCost cost;
  cost.saved_bytes = saved.size();
  // Without a backward to follow, what would be kept lies in the workspace.
  cost.workspace_bytes = workspace.size() + (forward ? saved.size() : 0);
  cost.flops = forward ? 2 * N * weights + 2 * attention : 4 * N * weights + 5 * attention;
  cost.bytes_moved = (forward ? 1 : 2) * (weights * static_cast<double>(size_of(facts_.dtype)) +
                                          2.0 * static_cast<double>(saved.size() + boundary_bytes(output(shape))));
  return cost;
}

void LlamaBlock::forward(const ForwardArguments& arguments) const {
  const Batch& batch = arguments.batch;
  const LlamaConfig& c = facts_.config;
  const AttentionShape a = attention_shape(batch.shape);
  MemoryLayout scratch(arguments.workspace);
  const Workspace w = place_workspace(scratch, Phase::forward, batch.shape);
  MemoryLayout keep(arguments.saved ? arguments.saved : arguments.workspace + scratch.size());
  const Saved saved = place_saved(keep, batch.shape);
  const auto& p = arguments.parameters;
  const Tensor x = as_matrix(arguments.input[0], batch.shape.tokens(), c.hidden_size);
  const Tensor y = as_matrix(arguments.output[0], batch.shape.tokens(), c.hidden_size);

  rmsnorm_forward(x, p[kNorm1], c.rms_norm_eps, w.normed, w.rstd);
  linear_forward(w.normed, p[kQkv], saved.qkv);
  rope_forward(saved.qkv, a.H + a.K, a.D, batch.positions, facts_.rope);
  attention_forward(a, saved.qkv, batch.starts, saved.attention, saved.lse, w.attention);
  copy(x, saved.residual);
  linear_forward(saved.attention, p[kAttentionOutput], saved.residual, true);
  rmsnorm_forward(saved.residual, p[kNorm2], c.rms_norm_eps, w.normed, w.rstd);
  copy(saved.residual, y);
  mlp_forward(w.normed, {p[kGateUp], p[kDown]}, saved.gate_up, w.activated, y);
}

void LlamaBlock::backward(const BackwardArguments& arguments) const {
  MemoryLayout scratch(arguments.workspace);
  const Workspace w = place_workspace(scratch, Phase::backward, arguments.batch.shape);
  MemoryLayout kept(const_cast<std::byte*>(arguments.saved));  // only read
  const Saved saved = place_saved(kept, arguments.batch.shape);
  copy(arguments.grad_output[0], arguments.grad_input[0]);
  backward_mlp(arguments, saved, w);
  backward_attention(arguments, saved, w);
}

// grad_input holds the gradient of the block's output and becomes that of the residual after attention.
void LlamaBlock::backward_mlp(const BackwardArguments& arguments, const Saved& saved, const Workspace& w) const {
  const LlamaConfig& c = facts_.config;
  const std::int64_t N = arguments.batch.shape.tokens();
  const auto& p = arguments.parameters;
  const auto& g = arguments.gradients;
  rmsnorm_forward(saved.residual, p[kNorm2], c.rms_norm_eps, w.normed, w.rstd);
  mlp_backward(w.normed, {p[kGateUp], p[kDown]}, saved.gate_up, as_matrix(arguments.grad_output[0], N, c.hidden_size),
               w.activated, w.dgate_up, w.dnormed, g[kGateUp], g[kDown]);
  rmsnorm_backward(saved.residual, p[kNorm2], w.rstd, w.dnormed, as_matrix(arguments.grad_input[0], N, c.hidden_size),
                   true, g[kNorm2]);
}

// grad_input holds the gradient of the residual after attention and becomes that of the block's input.
void LlamaBlock::backward_attention(const BackwardArguments& arguments, const Saved& saved, const Workspace& w) const {
  const LlamaConfig& c = facts_.config;
  const Batch& batch = arguments.batch;
  const AttentionShape a = attention_shape(batch.shape);
  const auto& p = arguments.parameters;
  const auto& g = arguments.gradients;
  const Tensor x = as_matrix(arguments.input[0], batch.shape.tokens(), c.hidden_size);
  const Tensor dx = as_matrix(arguments.grad_input[0], batch.shape.tokens(), c.hidden_size);
  linear_backward_weight(dx, saved.attention, g[kAttentionOutput]);
  linear_backward_input(dx, p[kAttentionOutput], w.dattention);
  attention_backward(a, saved.qkv, batch.starts, saved.attention, saved.lse, w.dattention, w.dqkv, w.attention);
  rope_backward(w.dqkv, a.H + a.K, a.D, batch.positions, facts_.rope);
  rmsnorm_forward(x, p[kNorm1], c.rms_norm_eps, w.normed, w.rstd);
  linear_backward_weight(w.dqkv, w.normed, g[kQkv]);
  linear_backward_input(w.dqkv, p[kQkv], w.dnormed);
  rmsnorm_backward(x, p[kNorm1], w.rstd, w.dnormed, dx, true, g[kNorm1]);
}

}  // namespace trireme
