// The three kinds of unit that every transformer here is made of: the families are facts, not classes. Internal to
// models/: others see Unit.
#pragma once
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "chain/unit.h"
#include "layers/attention.h"
#include "layers/dropout.h"
#include "layers/loss_head.h"
#include "layers/memory.h"
#include "layers/mlp.h"
#include "layers/norm.h"
#include "layers/rope.h"

namespace trireme {

// What all units share. Workspaces hold a part for each of `threads` compute threads.
struct TransformerFacts {
  DType dtype = DType::f32;
  int threads = 1;
  std::int64_t vocabulary = 0, padded_vocabulary = 0, max_positions = 0, loss_chunk_tokens = 1;
  std::int64_t C = 0, F = 0, H = 0, K = 0, D = 0;
  Norm norm;  // every one of the model
  MlpKind mlp;
  bool input_major = false;  // the blocks' matrices are [in, out]
  double embedding_scale = 1, attention_soft_cap = 0, logit_soft_cap = 0;
  double embedding_dropout = 0, attention_dropout = 0, residual_dropout = 0;
  bool deterministic = true;
  bool float_gradients = false;
  bool recompute_wide = false;  // the feed-forward network's wide rows are not kept but computed again in the backward
};

// Of a matrix.
inline DType gradient_dtype(const TransformerFacts& facts) {
  return facts.float_gradients ? DType::f32 : facts.dtype;
}

// Where a matrix or a norm is in its unit's parameters. -1: not there.
struct Slot {
  int weight = -1, bias = -1;
  explicit operator bool() const { return weight >= 0; }
};

class TransformerUnit : public Unit {
 public:
  TransformerUnit(const TransformerFacts& facts, std::string name, std::vector<int> parameters)
      : facts_(facts), name_(std::move(name)), parameters_(std::move(parameters)) {}
  const std::string& name() const override { return name_; }
  const std::vector<int>& parameters() const override { return parameters_; }
  BoundarySpec output(const BatchShape& shape) const override {
    return {{"hidden", facts_.dtype, {shape.batch, shape.sequence, facts_.C}}};
  }

 protected:
  TransformerFacts facts_;

 private:
  std::string name_;
  std::vector<int> parameters_;
};

// Token embedding, scaled, with learned positions where there are two parameters; also checks the side inputs, on which
// the later units rely. Parameters: the matrix [V padded, C], positions [max_positions, C].
class TransformerEmbedding final : public TransformerUnit {
 public:
  TransformerEmbedding(const TransformerFacts& facts, std::string name, std::vector<int> parameters);
  UnitCost describe(Phase phase, const BatchShape& shape) const override;
  void check(const Batch& batch) const override;
  void forward(const ForwardArguments& arguments) const override;
  void backward(const BackwardArguments& arguments) const override;

 private:
  struct Workspace {
    Tensor positions;  // forward: their rows
    Tensor gradient;   // backward: what reaches the matrices, where it is not the boundary's
    Tensor sort;
  };
  Workspace place_workspace(MemoryLayout& memory, Phase phase, const BatchShape& shape) const;
  bool has_positions() const { return parameters().size() > 1; }
  std::uint64_t dropout_stream_;
};

struct BlockFacts {
  Slot norm1, qkv, query_norm, key_norm, attention_output, post_attention_norm;
  Slot norm2, mlp_up, mlp_down, post_mlp_norm;
  RopeTables rope;          // no table: positions are learned
  std::int64_t window = 0;  // positions that one sees, itself among them; 0: all before it
  double attention_scale = 1;
};

// x + branch(norm(x)) twice, for attention and for the feed-forward network. What a branch gives goes through a norm of
// its own and through dropout, where there are any, before it is added.
class TransformerBlock final : public TransformerUnit {
 public:
  TransformerBlock(const TransformerFacts& facts, BlockFacts block, std::string name, std::vector<int> parameters);
  UnitCost describe(Phase phase, const BatchShape& shape) const override;
  std::vector<kernels::Product> products(const BatchShape& shape) const override;
  std::int64_t cache_bytes(std::int64_t tokens) const override;
  void forward(const ForwardArguments& arguments) const override;
  void backward(const BackwardArguments& arguments) const override;

 private:
  // Kept for the backward; normed rows and the activated feed-forward rows are computed again there.
  struct Saved {
    NormStatistics norm1, norm2, branch1_norm, branch2_norm;
    Tensor qkv;        // after RoPE; before the norms of queries and keys, where there are any
    Tensor attention;  // heads' outputs, before the projection
    Tensor lse;
    Tensor residual;          // after attention
    Tensor wide;              // the feed-forward network's, before the activation, unless recompute_wide
    Tensor branch1, branch2;  // what goes into the branches' norms
  };
  struct Workspace {
    Tensor normed, dnormed, activated, dqkv, dattention, dwide, attention;
    Tensor turned, heads_rstd;  // queries and keys after norm and RoPE
    Tensor starts;              // in the window
    Tensor branch;              // on its way to the residual, or its gradient
    Tensor wide;                // with recompute_wide
  };
  struct Pass;  // one call: views and shapes
  // What is added to the residual: through a norm, where it has one, of which `before` is the input, and dropout.
  struct Branch {
    Slot norm;
    Tensor before;
    NormStatistics statistics;
    std::uint64_t stream;
  };
  Branch branch1(const Saved& saved) const {
    return {block_.post_attention_norm, saved.branch1, saved.branch1_norm, branch1_stream_};
  }
  Branch branch2(const Saved& saved) const {
    return {block_.post_mlp_norm, saved.branch2, saved.branch2_norm, branch2_stream_};
  }
  struct Linear;
  std::array<Linear, 4> linears(const AttentionShape& shape) const;
  std::int64_t library_bytes(const BatchShape& shape) const;
  Saved place_saved(MemoryLayout& memory, const BatchShape& shape) const;
  Workspace place_workspace(MemoryLayout& memory, Phase phase, const BatchShape& shape) const;
  AttentionShape attention_shape(const BatchShape& shape) const;
  bool has_head_norms() const { return static_cast<bool>(block_.query_norm); }

  Tensor turn_heads(const Pass& pass, const Saved& saved, const Workspace& w) const;
  void attend(const Pass& pass, const Tensor& qkv, std::byte* const* caches, const Saved& saved,
              const Workspace& w) const;
  const std::int32_t* starts_of(const Batch& batch, const Workspace& w) const;
  void add_branch(const Pass& pass, const Workspace& w, const Branch& branch, const Tensor& residual,
                  const Tensor& sum) const;
  Tensor branch_gradient(const Pass& pass, const BackwardArguments& arguments, const Workspace& w, const Branch& branch,
                         const Tensor& gradient) const;
  bool adds_directly(const Batch& batch, Slot norm) const;
  void backward_mlp(const Pass& pass, const BackwardArguments& arguments, const Saved& saved, const Workspace& w) const;
  void backward_attention(const Pass& pass, const BackwardArguments& arguments, const Saved& saved,
                          const Workspace& w) const;
  void backward_heads(const Pass& pass, const BackwardArguments& arguments, const Saved& saved,
                      const Workspace& w) const;

  BlockFacts block_;
  std::uint64_t attention_stream_, branch1_stream_, branch2_stream_;  // of dropout
};

// Final norm, output projection and loss. Phase::forward is logits(), Phase::backward is loss().
class TransformerHead final : public TransformerUnit {
 public:
  // matrix: [V padded, C] (the embedding's if tied).
  TransformerHead(const TransformerFacts& facts, Slot norm, int matrix, std::string name, std::vector<int> parameters)
      : TransformerUnit(facts, std::move(name), std::move(parameters)), norm_(norm), matrix_(matrix) {}
  BoundarySpec output(const BatchShape&) const override { return {}; }
  UnitCost describe(Phase phase, const BatchShape& shape) const override;
  std::vector<kernels::Product> products(const BatchShape& shape) const override;
  void check(const Batch& batch) const override;
  void loss(const LossArguments& arguments) const override;
  void logits(const ForwardArguments& arguments, std::span<const std::int64_t> positions, float* out) const override;

 private:
  struct LossWorkspace {
    Tensor normed;
    NormStatistics norm;
    LossHeadWorkspace head;
  };
  struct LogitsWorkspace {
    Tensor rows, normed, logits;
    NormStatistics norm;
  };
  LossHeadShape loss_shape(const BatchShape& shape) const;
  LossWorkspace place_loss(MemoryLayout& memory, const BatchShape& shape) const;
  LogitsWorkspace place_logits(MemoryLayout& memory, std::int64_t rows) const;

  Slot norm_;
  int matrix_;
};

// The views of a slot, among those that a unit was given.
inline NormWeights norm_weights(std::span<const Tensor> parameters, Slot slot) {
  return {parameters[slot.weight], slot.bias < 0 ? Tensor() : parameters[slot.bias]};
}
inline NormGradients norm_gradients(std::span<const GradientPlace> gradients, Slot slot) {
  return {gradients[slot.weight], slot.bias < 0 ? GradientPlace() : gradients[slot.bias]};
}

}  // namespace trireme
