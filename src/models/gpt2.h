// GPT-2: token and position embedding, L blocks (LayerNorm, attention, LayerNorm, feed-forward network, biases
// everywhere), head with chunked loss, dropout in training.
#pragma once
#include <cstdint>

#include "chain/chain.h"
#include "kernels/activation.h"

namespace trireme {

struct Gpt2Config {
  std::int64_t vocabulary = 0;         // V; the storage matrix is padded to a multiple of 128 rows
  std::int64_t hidden_size = 0;        // C, a multiple of num_heads
  std::int64_t intermediate_size = 0;  // F; 0: 4 C
  std::int64_t num_layers = 0;         // L
  std::int64_t num_heads = 0;          // H
  std::int64_t max_positions = 0;      // rows of the position embedding
  Activation activation = Activation::gelu_tanh;
  double layer_norm_eps = 1e-5;
  double init_std = 0.02;  // residual output projections are scaled by 1 / sqrt(2 L)
  bool tie_word_embeddings = true;
  bool scale_attention = true;                                                // scores are divided by sqrt(D)
  bool scale_attention_by_layer = false;                                      // and by the layer's number, from 1
  double embedding_dropout = 0, attention_dropout = 0, residual_dropout = 0;  // probabilities, in training
  std::int64_t loss_chunk_tokens = 1024;                                      // rows of logits that exist at once
  bool deterministic = true;     // on devices attention's gradients are added up in a fixed order
  bool float_gradients = false;  // of matrices, though units compute in 16 bits
  bool operator==(const Gpt2Config&) const = default;
};

// As make_llama(). Logical names and shapes are those of GPT2LMHeadModel (transformer.wte.weight,
// transformer.h.N.attn.c_attn.weight, ..., lm_head.weight unless tied): its Conv1D matrices are [in, out], and so lie
// in storage, so importers copy them as they are.
Chain make_gpt2(const Gpt2Config& config, DType compute_dtype, bool recompute_wide = false);

}  // namespace trireme
