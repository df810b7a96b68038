// The three kinds of unit that a Llama is made of. Internal to models/: others see Unit.
#pragma once
#include <string>
#include <vector>

#include "chain/unit.h"
#include "layers/attention.h"
#include "layers/loss_head.h"
#include "layers/memory.h"
#include "layers/rope.h"
#include "models/llama.h"

namespace trireme {

// What all units share. Workspaces hold a part for each of `threads` compute threads.
struct LlamaFacts {
  LlamaConfig config;
  DType dtype = DType::f32;
  std::int64_t padded_vocabulary = 0;
  int threads = 1;
  RopeTable rope;
};

class LlamaUnit : public Unit {
 public:
  LlamaUnit(LlamaFacts facts, std::string name, std::vector<int> parameters)
      : facts_(std::move(facts)), name_(std::move(name)), parameters_(std::move(parameters)) {}
  const std::string& name() const override { return name_; }
  const std::vector<int>& parameters() const override { return parameters_; }
  BoundarySpec output(const BatchShape& shape) const override {
    return {{"hidden", facts_.dtype, {shape.batch, shape.sequence, facts_.config.hidden_size}}};
  }

 protected:
  LlamaFacts facts_;

 private:
  std::string name_;
  std::vector<int> parameters_;
};

// Token embedding; also checks the side inputs, on which the later units rely. Parameters: the matrix [V padded, C].
class LlamaEmbedding final : public LlamaUnit {
 public:
  using LlamaUnit::LlamaUnit;
  UnitCost describe(Phase phase, const BatchShape& shape) const override;
  void forward(const ForwardArguments& arguments) const override;
  void backward(const BackwardArguments& arguments) const override;
};

// One block. Parameters: norm, qkv, attention output, norm, gate_up, down.
class LlamaBlock final : public LlamaUnit {
 public:
  using LlamaUnit::LlamaUnit;
  UnitCost describe(Phase phase, const BatchShape& shape) const override;
  void forward(const ForwardArguments& arguments) const override;
  void backward(const BackwardArguments& arguments) const override;

 private:
  // Kept for the backward; the normed rows and the activated feed-forward rows are computed again there.
  struct Saved {
    Tensor qkv;        // after RoPE
    Tensor attention;  // heads' outputs, before the projection
    Tensor lse;
    Tensor residual;  // after attention
    Tensor gate_up;
  };
  struct Workspace {
    Tensor normed, rstd, dnormed, activated, dqkv, dattention, dgate_up, attention;
  };
  Saved place_saved(MemoryLayout& memory, const BatchShape& shape) const;
  Workspace place_workspace(MemoryLayout& memory, Phase phase, const BatchShape& shape) const;
  AttentionShape attention_shape(const BatchShape& shape) const;
  void backward_mlp(const BackwardArguments& arguments, const Saved& saved, const Workspace& workspace) const;
  void backward_attention(const BackwardArguments& arguments, const Saved& saved, const Workspace& workspace) const;
};

// Final norm, output projection and loss. Parameters: norm, then the matrix [V padded, C] (the embedding's if tied).
// Phase::forward is logits(), Phase::backward is loss().
class LlamaHead final : public LlamaUnit {
 public:
  using LlamaUnit::LlamaUnit;
  BoundarySpec output(const BatchShape&) const override { return {}; }
  UnitCost describe(Phase phase, const BatchShape& shape) const override;
  LossResult loss(const LossArguments& arguments) const override;
  void logits(const ForwardArguments& arguments, std::span<const std::int64_t> positions, float* out) const override;

 private:
  struct LossWorkspace {
    Tensor normed, rstd;
    LossHeadWorkspace head;
  };
  struct LogitsWorkspace {
    Tensor rows, normed, rstd, logits;
  };
  LossHeadShape loss_shape(const BatchShape& shape) const;
  LossWorkspace place_loss(MemoryLayout& memory, const BatchShape& shape) const;
  LogitsWorkspace place_logits(MemoryLayout& memory, std::int64_t rows) const;
};

}  // namespace trireme
