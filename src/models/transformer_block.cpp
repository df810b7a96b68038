#include <algorithm>
#include <utility>

#include "base/random.h"
#include "kernels/device.h"
#include "layers/linear.h"
#include "layout/dispatch.h"
#include "models/transformer.h"

namespace trireme {
namespace {

void add(const Tensor& x, const Tensor& y, const Tensor& sum) {
  dispatch(x.dtype, [&]<class T>(T) { kernels::table<T>().add(x.numel(), x.as<T>(), y.as<T>(), sum.as<T>()); });
}

}  // namespace

struct TransformerBlock::Pass {
  const Batch& batch;
  std::span<const Tensor> parameters;
  AttentionShape shape;
  std::int64_t N;
  bool input_major;

  NormWeights norm(Slot slot) const { return norm_weights(parameters, slot); }
  LinearWeights linear(Slot slot) const {
    return {parameters[slot.weight], slot.bias < 0 ? Tensor() : parameters[slot.bias], input_major};
  }
  static LinearGradients gradients(std::span<const GradientPlace> places, Slot slot) {
    return {places[slot.weight], slot.bias < 0 ? GradientPlace() : places[slot.bias]};
  }
};

TransformerBlock::TransformerBlock(const TransformerFacts& facts, BlockFacts block, std::string name,
                                   std::vector<int> parameters)
    : TransformerUnit(facts, std::move(name), std::move(parameters)), block_(std::move(block)) {
  attention_stream_ = stream_id(this->name() + "/dropout/attention");
  branch1_stream_ = stream_id(this->name() + "/dropout/attention_output");
  branch2_stream_ = stream_id(this->name() + "/dropout/mlp");
}

AttentionShape TransformerBlock::attention_shape(const BatchShape& shape) const {
  return {.B = shape.batch,
          .T = shape.sequence,
          .H = facts_.H,
          .K = facts_.K,
          .D = facts_.D,
          .scale = block_.attention_scale,
          .soft_cap = facts_.attention_soft_cap,
          .past = shape.past,
          .deterministic = facts_.deterministic};
}

TransformerBlock::Saved TransformerBlock::place_saved(MemoryLayout& memory, const BatchShape& shape) const {
  const AttentionShape a = attention_shape(shape);
  const std::int64_t N = shape.tokens();
  Saved saved;
  saved.norm1 = place_norm_statistics(memory, facts_.norm, N, facts_.dtype);
  saved.norm2 = place_norm_statistics(memory, facts_.norm, N, facts_.dtype);
  saved.qkv = memory.place(facts_.dtype, {N, a.qkv_width()});
  saved.attention = memory.place(facts_.dtype, {N, a.H * a.D});
  saved.lse = memory.place(accumulator_of(facts_.dtype), {a.B, a.H, a.T});
  saved.residual = memory.place(facts_.dtype, {N, facts_.C});
  if (!facts_.recompute_wide) saved.wide = memory.place(facts_.dtype, {N, facts_.mlp.up_width(facts_.F)});
  if (block_.post_attention_norm) {
    saved.branch1 = memory.place(facts_.dtype, {N, facts_.C});
    saved.branch1_norm = place_norm_statistics(memory, facts_.norm, N, facts_.dtype);
  }
  if (block_.post_mlp_norm) {
    saved.branch2 = memory.place(facts_.dtype, {N, facts_.C});
    saved.branch2_norm = place_norm_statistics(memory, facts_.norm, N, facts_.dtype);
  }
  return saved;
}

TransformerBlock::Workspace TransformerBlock::place_workspace(MemoryLayout& memory, Phase phase,
                                                              const BatchShape& shape) const {
  const AttentionShape a = attention_shape(shape);
  const std::int64_t N = shape.tokens();
  const DType acc = accumulator_of(facts_.dtype);
  Workspace w;
  if (phase == Phase::forward || facts_.recompute_wide) w.normed = memory.place(facts_.dtype, {N, facts_.C});
  w.activated = memory.place(facts_.dtype, {N, facts_.F});
  w.attention = memory.place(DType::u8, {attention_workspace_bytes(a, facts_.dtype, phase, facts_.threads)});
  if (has_head_norms()) {
    w.turned = memory.place(facts_.dtype, {N, a.qkv_width()});
    w.heads_rstd = memory.place(acc, {N, a.H + a.K});
  }
  if (facts_.recompute_wide) w.wide = memory.place(facts_.dtype, {N, facts_.mlp.up_width(facts_.F)});
  if (block_.window > 0) w.starts = memory.place(DType::i32, {N});
  if (block_.post_attention_norm || facts_.residual_dropout > 0) w.branch = memory.place(facts_.dtype, {N, facts_.C});
  if (phase == Phase::backward) {
    w.dnormed = memory.place(facts_.dtype, {N, facts_.C});
    w.dqkv = memory.place(facts_.dtype, {N, a.qkv_width()});
    w.dattention = memory.place(facts_.dtype, {N, a.H * a.D});
    w.dwide = memory.place(facts_.dtype, {N, facts_.mlp.up_width(facts_.F)});
  }
  return w;
}

UnitCost TransformerBlock::describe(Phase phase, const BatchShape& shape) const {
  const AttentionShape a = attention_shape(shape);
  const double N = static_cast<double>(shape.tokens());
  const double weights =
      static_cast<double>(facts_.C * (a.qkv_width() + a.H * a.D + facts_.mlp.up_width(facts_.F) + facts_.F));
  // A query meets half of the keys on average, or those of its window: a product over them costs 2 * D * T / 2 a head.
  // Forward has two, backward five (the scores again, and four gradients).
  const double T = static_cast<double>(a.T), window = static_cast<double>(block_.window);
  const double keys = block_.window > 0 && 2 * window < T ? 2 * window : T;
  const double attention = N * keys * static_cast<double>(a.H * a.D);
  MemoryLayout saved, workspace;
  place_saved(saved, shape);
  place_workspace(workspace, phase, shape);
  const bool forward = phase == Phase::forward;
  UnitCost cost;
  cost.saved_bytes = saved.size();
  cost.workspace_bytes = workspace.size();
  cost.flops = forward ? 2 * N * weights + 2 * attention : 4 * N * weights + 5 * attention;
  if (!forward && facts_.recompute_wide) {
    cost.flops += 2 * N * static_cast<double>(facts_.C * facts_.mlp.up_width(facts_.F));
  }
  cost.attention_flops = (forward ? 2 : 5) * attention;
  cost.smallest_side = std::min({shape.tokens(), facts_.C, a.qkv_width(), facts_.F});
  cost.library_bytes = library_bytes(shape);
  cost.bytes_moved = (forward ? 1 : 2) * (weights * static_cast<double>(size_of(facts_.dtype)) +
                                          2.0 * static_cast<double>(saved.size() + boundary_bytes(output(shape))));
  return cost;
}

struct TransformerBlock::Linear {
  Slot slot;
  std::int64_t in, out;
};

std::array<TransformerBlock::Linear, 4> TransformerBlock::linears(const AttentionShape& a) const {
  return {Linear{block_.qkv, facts_.C, a.qkv_width()}, Linear{block_.attention_output, a.H * a.D, facts_.C},
          Linear{block_.mlp_up, facts_.C, facts_.mlp.up_width(facts_.F)}, Linear{block_.mlp_down, facts_.F, facts_.C}};
}

std::vector<kernels::Product> TransformerBlock::products(const BatchShape& shape) const {
  std::vector<kernels::Product> all;
  for (const auto& [slot, in, out] : linears(attention_shape(shape))) {
    const auto own = linear_products(facts_.dtype, gradient_dtype(facts_), shape.tokens(), in, out, facts_.input_major,
                                     slot.bias >= 0);
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

// The largest of its matrix products, all of which the backward has, and the forward some.
std::int64_t TransformerBlock::library_bytes(const BatchShape& shape) const {
  const AttentionShape a = attention_shape(shape);
  std::int64_t most = attention_scratch_bytes(a, facts_.dtype, facts_.threads);
  for (const auto& [slot, in, out] : linears(a)) {
    most = std::max(
        most, linear_scratch_bytes(facts_.dtype, gradient_dtype(facts_), shape.tokens(), in, out, facts_.threads));
  }
  return most;
}

// What attention reads: saved.qkv itself, rotated in the forward, or a copy of it with norms and RoPE.
Tensor TransformerBlock::turn_heads(const Pass& pass, const Saved& saved, const Workspace& w) const {
  const AttentionShape& a = pass.shape;
  if (!has_head_norms()) return saved.qkv;
  kernels::copy(w.turned.data, saved.qkv.data, saved.qkv.bytes());
  Tensor rstd = w.heads_rstd;
  const auto norm_heads = [&](Slot slot, std::int64_t first, std::int64_t count) {
    heads_norm_forward(facts_.norm, {first, count, a.D}, saved.qkv, pass.parameters[slot.weight], w.turned, rstd);
    rstd.data = static_cast<std::byte*>(rstd.data) + pass.N * count * size_of(rstd.dtype);
  };
  norm_heads(block_.query_norm, 0, a.H);
  norm_heads(block_.key_norm, a.H, a.K);
  rope_forward(w.turned, a.H + a.K, a.D, pass.batch.positions, block_.rope.of(pass.batch));
  return w.turned;
}

std::int64_t TransformerBlock::cache_bytes(std::int64_t tokens) const {
  return tokens * 2 * facts_.K * facts_.D * size_of(facts_.dtype);
}

void TransformerBlock::attend(const Pass& pass, const Tensor& qkv, std::byte* const* caches, const Saved& saved,
                              const Workspace& w) const {
  const Batch& batch = pass.batch;
  if (batch.past == nullptr) {
    attention_forward(pass.shape, dropout_of(batch, facts_.attention_dropout, attention_stream_), qkv,
                      starts_of(batch, w), saved.attention, saved.lse, w.attention);
    return;
  }
  TRIREME_CHECK(caches != nullptr && batch.dropout_keys == nullptr,
                "a batch with a past has a cache for each row, and drops nothing");
  attention_cached(pass.shape, qkv, caches, batch.past, starts_of(batch, w), saved.attention, saved.lse, w.attention);
}

const std::int32_t* TransformerBlock::starts_of(const Batch& batch, const Workspace& w) const {
  if (block_.window == 0) return batch.starts;
  starts_in_window(batch, block_.window, w.starts.as<std::int32_t>());
  return w.starts.as<std::int32_t>();
}

bool TransformerBlock::adds_directly(const Batch& batch, Slot norm) const {
  return !norm && !is_active(dropout_of(batch, facts_.residual_dropout, 0));
}

// sum = residual + dropout(norm(before)); without a norm, what the branch gave is in w.branch already.
void TransformerBlock::add_branch(const Pass& pass, const Workspace& w, const Branch& branch, const Tensor& residual,
                                  const Tensor& sum) const {
  if (branch.norm) {
    norm_forward(facts_.norm, branch.before, pass.norm(branch.norm), w.branch, branch.statistics);
  }
  const kernels::Dropout dropout = dropout_of(pass.batch, facts_.residual_dropout, branch.stream);
  if (is_active(dropout)) apply_dropout(dropout, pass.batch.shape, w.branch, w.branch);
  add(w.branch, residual, sum);
}

// From the gradient of the residual to that of what the branch gave.
Tensor TransformerBlock::branch_gradient(const Pass& pass, const BackwardArguments& arguments, const Workspace& w,
                                         const Branch& branch, const Tensor& gradient) const {
  if (adds_directly(pass.batch, branch.norm)) return gradient;
  const kernels::Dropout dropout = dropout_of(pass.batch, facts_.residual_dropout, branch.stream);
  const bool drops = is_active(dropout);
  if (drops) apply_dropout(dropout, pass.batch.shape, gradient, w.branch);
  if (branch.norm) {
    norm_backward(facts_.norm, branch.before, pass.norm(branch.norm), branch.statistics, drops ? w.branch : gradient,
                  {}, w.branch, norm_gradients(arguments.gradients, branch.norm));
  }
  return w.branch;
}

void TransformerBlock::forward(const ForwardArguments& arguments) const {
  const Batch& batch = arguments.batch;
  const std::int64_t N = batch.shape.tokens();
  const Pass pass{batch, arguments.parameters, attention_shape(batch.shape), N, facts_.input_major};
  const AttentionShape& a = pass.shape;
  MemoryLayout scratch(arguments.workspace);
  const Workspace w = place_workspace(scratch, Phase::forward, batch.shape);
  MemoryLayout keep(arguments.saved ? arguments.saved : arguments.workspace + scratch.size());
  const Saved saved = place_saved(keep, batch.shape);
  const Tensor x = as_matrix(arguments.input[0], N, facts_.C);
  const Tensor y = as_matrix(arguments.output[0], N, facts_.C);
  // Where a branch is written, and whether that is the new residual already, with the old one added.
  const auto target = [&](const Branch& branch, const Tensor& sum) {
    return adds_directly(batch, branch.norm) ? sum : branch.norm ? branch.before : w.branch;
  };

  norm_forward(facts_.norm, x, pass.norm(block_.norm1), w.normed, saved.norm1);
  linear_forward(w.normed, pass.linear(block_.qkv), saved.qkv);
  if (!has_head_norms() && block_.rope.table != nullptr) {
    rope_forward(saved.qkv, a.H + a.K, a.D, batch.positions, block_.rope.of(batch));
  }
  attend(pass, turn_heads(pass, saved, w), arguments.caches, saved, w);
  const Branch attention = branch1(saved), mlp = branch2(saved);
  const bool direct1 = adds_directly(batch, attention.norm);
  linear_forward(saved.attention, pass.linear(block_.attention_output), target(attention, saved.residual),
                 direct1 ? x : Tensor());
  if (!direct1) add_branch(pass, w, attention, x, saved.residual);

  norm_forward(facts_.norm, saved.residual, pass.norm(block_.norm2), w.normed, saved.norm2);
  const bool direct2 = adds_directly(batch, mlp.norm);
  mlp_forward(facts_.mlp, w.normed, {pass.linear(block_.mlp_up), pass.linear(block_.mlp_down)},
              facts_.recompute_wide ? w.wide : saved.wide, w.activated, target(mlp, y),
              direct2 ? saved.residual : Tensor());
  if (!direct2) add_branch(pass, w, mlp, saved.residual, y);
}

void TransformerBlock::backward(const BackwardArguments& arguments) const {
  const Batch& batch = arguments.batch;
  const Pass pass{batch, arguments.parameters, attention_shape(batch.shape), batch.shape.tokens(), facts_.input_major};
  MemoryLayout scratch(arguments.workspace);
  const Workspace w = place_workspace(scratch, Phase::backward, batch.shape);
  MemoryLayout kept(const_cast<std::byte*>(arguments.saved));  // only read
  const Saved saved = place_saved(kept, batch.shape);
  backward_mlp(pass, arguments, saved, w);
  backward_attention(pass, arguments, saved, w);
}

// grad_input becomes the gradient of the residual after attention.
void TransformerBlock::backward_mlp(const Pass& pass, const BackwardArguments& arguments, const Saved& saved,
                                    const Workspace& w) const {
  const auto& g = arguments.gradients;
  const LinearWeights up = pass.linear(block_.mlp_up);
  const Tensor dy = as_matrix(arguments.grad_output[0], pass.N, facts_.C);
  const Tensor dx = as_matrix(arguments.grad_input[0], pass.N, facts_.C);
  const Tensor dbranch = branch_gradient(pass, arguments, w, branch2(saved), dy);
  if (facts_.recompute_wide) {
    norm_forward(facts_.norm, saved.residual, pass.norm(block_.norm2), w.normed, saved.norm2);
    linear_forward(w.normed, up, w.wide);
  }
  mlp_backward(facts_.mlp, {up, pass.linear(block_.mlp_down)}, facts_.recompute_wide ? w.wide : saved.wide, dbranch,
               w.activated, w.dwide, w.dnormed, Pass::gradients(g, block_.mlp_down));
  const Tensor& normed = w.dnormed;  // becomes that
  norm_backward(facts_.norm, saved.residual, pass.norm(block_.norm2), saved.norm2, w.dnormed, dy, dx,
                norm_gradients(g, block_.norm2), normed);
  linear_backward_weight(w.dwide, normed, up, Pass::gradients(g, block_.mlp_up));
}

// grad_input holds the gradient of the residual after attention and becomes that of the block's input.
void TransformerBlock::backward_attention(const Pass& pass, const BackwardArguments& arguments, const Saved& saved,
                                          const Workspace& w) const {
  const auto& g = arguments.gradients;
  const Batch& batch = pass.batch;
  const Tensor x = as_matrix(arguments.input[0], pass.N, facts_.C);
  const Tensor dx = as_matrix(arguments.grad_input[0], pass.N, facts_.C);
  const Tensor dbranch = branch_gradient(pass, arguments, w, branch1(saved), dx);
  const LinearWeights projection = pass.linear(block_.attention_output), qkv = pass.linear(block_.qkv);
  linear_backward_weight(dbranch, saved.attention, projection, Pass::gradients(g, block_.attention_output));
  linear_backward_input(dbranch, projection, w.dattention);
  attention_backward(pass.shape, dropout_of(batch, facts_.attention_dropout, attention_stream_),
                     turn_heads(pass, saved, w), starts_of(batch, w), saved.attention, saved.lse, w.dattention, w.dqkv,
                     w.attention);
  backward_heads(pass, arguments, saved, w);
  linear_backward_input(w.dqkv, qkv, w.dnormed);
  const Tensor& normed = w.dnormed;  // becomes that
  norm_backward(facts_.norm, x, pass.norm(block_.norm1), saved.norm1, w.dnormed, dx, dx,
                norm_gradients(g, block_.norm1), normed);
  linear_backward_weight(w.dqkv, normed, qkv, Pass::gradients(g, block_.qkv));
}

// w.dqkv, from the gradient of what attention reads to that of the projection. turn_heads() has left the norms' rstd.
void TransformerBlock::backward_heads(const Pass& pass, const BackwardArguments& arguments, const Saved& saved,
                                      const Workspace& w) const {
  const AttentionShape& a = pass.shape;
  if (block_.rope.table != nullptr) {
    rope_backward(w.dqkv, a.H + a.K, a.D, pass.batch.positions, block_.rope.of(pass.batch));
  }
  if (!has_head_norms()) return;
  Tensor rstd = w.heads_rstd;
  const auto backward_norm = [&](Slot slot, std::int64_t first, std::int64_t count) {
    heads_norm_backward(facts_.norm, {first, count, a.D}, saved.qkv, pass.parameters[slot.weight], rstd, w.dqkv,
                        arguments.gradients[slot.weight]);
    rstd.data = static_cast<std::byte*>(rstd.data) + pass.N * count * size_of(rstd.dtype);
  };
  backward_norm(block_.query_norm, 0, a.H);
  backward_norm(block_.key_norm, a.H, a.K);
}

}  // namespace trireme
