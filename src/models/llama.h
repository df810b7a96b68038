// Llama and its relatives (Mistral, Qwen2, Qwen3, Gemma 1 to 3, SmolLM2): embedding, L blocks (RMSNorm, grouped-query
// attention with RoPE, RMSNorm, gated feed-forward network), head with chunked loss. What the families differ in is an
// option here; the defaults are Llama's.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "chain/chain.h"
#include "kernels/activation.h"
#include "layers/rope.h"

namespace trireme {

struct LlamaConfig {
  std::int64_t vocabulary = 0;           // V; the storage matrix is padded to a multiple of 128 rows
  std::int64_t hidden_size = 0;          // C
  std::int64_t intermediate_size = 0;    // F
  std::int64_t num_layers = 0;           // L
  std::int64_t num_heads = 0;            // H
  std::int64_t num_key_value_heads = 0;  // K, divides H
  std::int64_t head_dim = 0;             // D, even; 0: C / H
  std::int64_t max_positions = 0;
  Rope rope;
  double rms_norm_eps = 1e-5;
  double init_std = 0.02;  // residual output projections are scaled by 1 / sqrt(2 L)
  bool tie_word_embeddings = true;
  std::int64_t loss_chunk_tokens = 1024;  // rows of logits that exist at once
  bool deterministic = true;              // on devices attention's gradients are added up in a fixed order
  bool float_gradients = false;           // of matrices, though units compute in 16 bits

  Activation activation = Activation::silu;  // of the gate
  bool qkv_bias = false;                     // Qwen2; Llama's attention_bias sets both
  bool attention_output_bias = false;
  bool mlp_bias = false;               // gate, up and down
  bool query_key_norms = false;        // Qwen3, Gemma 3: RMSNorm of each head's queries and keys, before RoPE
  bool one_plus_norm_weights = false;  // Gemma: every RMSNorm multiplies by 1 + weight; weights start at 0
  bool post_norms = false;             // Gemma 2, 3: a norm of what attention and the network add to the residual
  double embedding_scale = 1;          // Gemma: sqrt(C); rounded to the compute dtype before it multiplies
  double attention_scale = 0;          // of scores; 0: 1 / sqrt(D). Gemma: 1 / sqrt(query_pre_attn_scalar)
  double attention_soft_cap = 0;       // Gemma 2: scores become cap * tanh(score / cap); 0: none
  double logit_soft_cap = 0;           // Gemma 2: the same of the final logits
  double attention_dropout = 0;        // probability that a weight is dropped, in training
  std::vector<std::int64_t> windows;   // of each layer: position t sees the last `window` positions, itself among
                                       // them; 0: all before it. Empty: 0 everywhere
  std::optional<Rope> windowed_rope;   // Gemma 3: of the layers with a window; unset: rope
  bool operator==(const LlamaConfig&) const = default;
};

// Units: "embed", "layers.0" .. "layers.{L-1}", "head" (final norm and output projection). Logical names are Hugging
// Face's (model.embed_tokens.weight, model.layers.N.self_attn.q_proj.weight, ..., model.norm.weight, lm_head.weight
// unless tied). Throws Error TR1201 with the offending value for impossible sizes.
//
// Workspaces are sized for the compute threads that the calling thread has now (kernels::set_num_threads); running with
// more throws TR1206. The head's describe(Phase::backward) is that of loss(), describe(Phase::forward) that of
// logits(). The embedding checks ids, positions and document starts (TR1202 .. TR1204), the head checks labels
// (TR1205). compute_dtype is f32, bf16 or f16; f64 for tests. Weight gradients of a 16-bit type add up in fp32 and are
// rounded once a micro-batch, also over the chunks of the loss.
Chain make_llama(const LlamaConfig& config, DType compute_dtype, bool recompute_wide = false);

}  // namespace trireme
