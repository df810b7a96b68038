// Llama: embedding, L blocks (RMSNorm, grouped-query attention with RoPE, RMSNorm, SwiGLU), head with chunked loss.
#pragma once
#include <cstdint>

#include "chain/chain.h"

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
  double rope_theta = 10000.0;
  double rms_norm_eps = 1e-5;
  double init_std = 0.02;  // residual output projections are scaled by 1 / sqrt(2 L)
  bool tie_word_embeddings = true;
  std::int64_t loss_chunk_tokens = 1024;  // rows of logits that exist at once
};

// Units: "embed", "layers.0" .. "layers.{L-1}", "head" (final norm and output projection). Logical names are Hugging
// Face's (model.embed_tokens.weight, model.layers.N.self_attn.q_proj.weight, ..., model.norm.weight, lm_head.weight
// unless tied). Throws Error TR1201 with the offending value for impossible sizes.
//
// Workspaces are sized for the compute threads that the calling thread has now (kernels::set_num_threads); running with
// more throws TR1206. The head's describe(Phase::backward) is that of loss(), describe(Phase::forward) that of
// logits(). The embedding checks ids, positions and document starts (TR1202 .. TR1204), the head checks labels
// (TR1205). compute_dtype is f32 or bf16; f64 for tests. bf16 weight gradients add up in fp32 and are rounded to bf16
// once a micro-batch, also over the chunks of the loss.
Chain make_llama(const LlamaConfig& config, DType compute_dtype);

}  // namespace trireme
