#include "models/llama.h"

#include <cmath>
#include <string>
#include <utility>

#include "layout/dispatch.h"
#include "models/parameters.h"
#include "models/transformer.h"

namespace trireme {
namespace {

void check_heads(LlamaConfig& c) {
  if (c.num_heads % c.num_key_value_heads != 0) {
    throw Error(1201, "model.num_key_value_heads",
                std::to_string(c.num_key_value_heads) + " does not divide num_heads " + std::to_string(c.num_heads));
  }
  if (c.head_dim == 0) {
    if (c.hidden_size % c.num_heads != 0) {
      throw Error(1201, "model.num_heads",
                  std::to_string(c.num_heads) + " does not divide hidden_size " + std::to_string(c.hidden_size),
                  "set model.head_dim, or sizes that divide");
    }
    c.head_dim = c.hidden_size / c.num_heads;
  }
  if (c.head_dim % 2 != 0) {
    throw Error(1201, "model.head_dim", std::to_string(c.head_dim) + " is odd",
                "rotary embedding turns pairs of elements: take an even head size");
  }
}

void check_windows(const LlamaConfig& c) {
  if (!c.windows.empty() && std::ssize(c.windows) != c.num_layers) {
    throw Error(1201, "model.windows",
                "has " + std::to_string(c.windows.size()) + " values for " + std::to_string(c.num_layers) + " layers");
  }
  for (const std::int64_t window : c.windows) check_range("windows", window, 0, kLargestPositions);
}

LlamaConfig checked(LlamaConfig c) {
  check_range("vocabulary", c.vocabulary, 1, kLargestVocabulary);
  check_range("hidden_size", c.hidden_size, 1, kLargestWidth);
  check_range("intermediate_size", c.intermediate_size, 1, kLargestWidth);
  check_range("num_layers", c.num_layers, 1, 4096);
  check_range("num_heads", c.num_heads, 1, 4096);
  check_range("num_key_value_heads", c.num_key_value_heads, 1, c.num_heads);
  check_range("head_dim", c.head_dim, 0, 4096);
  check_range("max_positions", c.max_positions, 1, kLargestPositions);
  check_range("loss_chunk_tokens", c.loss_chunk_tokens, 1, kLargestVocabulary);
  check_positive("rope_theta", c.rope.theta);
  if (c.windowed_rope) check_positive("windowed rope_theta", c.windowed_rope->theta);
  check_positive("rms_norm_eps", c.rms_norm_eps);
  check_not_negative("init_std", c.init_std);
  check_positive("embedding_scale", c.embedding_scale);
  check_not_negative("attention_scale", c.attention_scale);
  check_not_negative("attention_soft_cap", c.attention_soft_cap);
  check_not_negative("logit_soft_cap", c.logit_soft_cap);
  check_probability("attention_dropout", c.attention_dropout);
  check_heads(c);
  check_windows(c);
  if (c.attention_scale == 0) c.attention_scale = 1 / std::sqrt(static_cast<double>(c.head_dim));
  return c;
}

TransformerFacts facts_of(const LlamaConfig& c, DType dtype) {
  TransformerFacts f = common_facts(c, dtype);
  f.K = c.num_key_value_heads, f.D = c.head_dim;
  f.norm = {.eps = c.rms_norm_eps, .centred = false, .one_plus = c.one_plus_norm_weights};
  f.mlp = {.activation = c.activation, .gated = true};
  f.embedding_scale = rounded(c.embedding_scale, dtype);
  f.attention_soft_cap = c.attention_soft_cap;
  f.logit_soft_cap = c.logit_soft_cap;
  return f;
}

// Declares a block's parameters, in the order in which it reads them.
class BlockBuilder {
 public:
  BlockBuilder(const LlamaConfig& c, std::int64_t layer, Chain& chain)
      : c_(c),
        parameters_(chain),
        own_("layers." + std::to_string(layer) + "."),
        theirs_("model." + own_),
        residual_std_(c.init_std / std::sqrt(2.0 * static_cast<double>(c.num_layers))) {}

  BlockFacts declare() {
    const std::int64_t C = c_.hidden_size, D = c_.head_dim;
    BlockFacts b;
    b.norm1 = norm("input_norm", C, "input_layernorm");
    b.qkv = qkv();
    if (c_.query_key_norms) {
      b.query_norm = norm("query_norm", D, "self_attn.q_norm");
      b.key_norm = norm("key_norm", D, "self_attn.k_norm");
    }
    b.attention_output = output("attention_output", c_.num_heads * D, "self_attn.o_proj", c_.attention_output_bias);
    if (c_.post_norms) {
      b.post_attention_norm = norm("attention_branch_norm", C, "post_attention_layernorm");
      b.norm2 = norm("post_attention_norm", C, "pre_feedforward_layernorm");
    } else {
      b.norm2 = norm("post_attention_norm", C, "post_attention_layernorm");
    }
    b.mlp_up = gate_up();
    b.mlp_down = output("down", c_.intermediate_size, "mlp.down_proj", c_.mlp_bias);
    if (c_.post_norms) b.post_mlp_norm = norm("mlp_branch_norm", C, "post_feedforward_layernorm");
    return b;
  }
  std::vector<int> indices() const { return parameters_.indices(); }

 private:
  Slot norm(const char* own, std::int64_t size, const char* theirs) {
    const Init init = c_.one_plus_norm_weights ? Init::zeros : Init::ones;
    return {parameters_.add(vector(own_ + own, size, init, {part_of_row(theirs_ + theirs + ".weight", 0, size)}))};
  }
  // parts: names and numbers of rows of the logical matrices that lie one below the other.
  Slot merged(const char* own, const std::vector<std::pair<const char*, std::int64_t>>& parts, bool bias) {
    std::vector<LogicalTensor> weights, biases;
    std::int64_t rows = 0;
    for (const auto& [name, size] : parts) {
      weights.push_back(rows_of(theirs_ + name + ".weight", rows, size, c_.hidden_size));
      biases.push_back(part_of_row(theirs_ + name + ".bias", rows, size));
      rows += size;
    }
    Slot slot{parameters_.add(matrix(own_ + own, rows, c_.hidden_size, c_.init_std, std::move(weights)))};
    if (bias) slot.bias = parameters_.add(vector(own_ + own + "_bias", rows, Init::zeros, std::move(biases)));
    return slot;
  }
  Slot qkv() {
    const std::int64_t Q = c_.num_heads * c_.head_dim, KV = c_.num_key_value_heads * c_.head_dim;
    return merged("qkv", {{"self_attn.q_proj", Q}, {"self_attn.k_proj", KV}, {"self_attn.v_proj", KV}}, c_.qkv_bias);
  }
  Slot gate_up() {
    const std::int64_t F = c_.intermediate_size;
    return merged("gate_up", {{"mlp.gate_proj", F}, {"mlp.up_proj", F}}, c_.mlp_bias);
  }
  Slot output(const char* own, std::int64_t width, const char* theirs, bool bias) {
    const std::int64_t C = c_.hidden_size;
    const std::string name = theirs_ + theirs;
    Slot slot{parameters_.add(matrix(own_ + own, C, width, residual_std_, {rows_of(name + ".weight", 0, C, width)}))};
    if (bias) {
      slot.bias = parameters_.add(vector(own_ + own + "_bias", C, Init::zeros, {part_of_row(name + ".bias", 0, C)}));
    }
    return slot;
  }

  const LlamaConfig& c_;
  UnitParameters parameters_;
  std::string own_, theirs_;
  double residual_std_;
};

void add_blocks(const LlamaConfig& c, const TransformerFacts& facts, Chain& chain) {
  const RopeTables rope = make_rope_tables(c.max_positions, c.head_dim, c.rope, "model.rope_scaling");
  const RopeTables windowed = c.windowed_rope ? make_rope_tables(c.max_positions, c.head_dim, *c.windowed_rope,
                                                                 "model.rope_scaling of layers with a window")
                                              : rope;
  for (const RopeTables& tables : {rope, windowed}) {
    if (tables.long_table != nullptr) chain.position_borders.push_back(tables.boundary);
  }
  chain.table_bytes = rope.bytes() + (c.windowed_rope ? windowed.bytes() : 0);
  for (std::int64_t layer = 0; layer < c.num_layers; ++layer) {
    BlockBuilder builder(c, layer, chain);
    BlockFacts block = builder.declare();
    block.window = c.windows.empty() ? 0 : c.windows[static_cast<std::size_t>(layer)];
    block.rope = block.window > 0 ? windowed : rope;
    block.attention_scale = c.attention_scale;
    chain.units.push_back(std::make_unique<TransformerBlock>(facts, std::move(block), "layers." + std::to_string(layer),
                                                             builder.indices()));
  }
}

}  // namespace

Chain make_llama(const LlamaConfig& config, DType compute_dtype, bool recompute_wide) {
  const LlamaConfig c = checked(config);
  check_compute_dtype(compute_dtype);
  TransformerFacts facts = facts_of(c, compute_dtype);
  facts.recompute_wide = recompute_wide;
  Chain chain;
  chain.compute_dtype = compute_dtype;
  chain.vocabulary = c.vocabulary;
  chain.max_positions = c.max_positions;
  const auto vocabulary_matrix = [&](const char* name, const char* logical) {
    return matrix(name, facts.padded_vocabulary, c.hidden_size, c.init_std,
                  {rows_of(logical, 0, c.vocabulary, c.hidden_size)});
  };
  UnitParameters embedding(chain);
  embedding.add(vocabulary_matrix("embed", "model.embed_tokens.weight"));
  chain.units.push_back(std::make_unique<TransformerEmbedding>(facts, "embed", embedding.indices()));
  add_blocks(c, facts, chain);
  UnitParameters head(chain);
  const Init init = c.one_plus_norm_weights ? Init::zeros : Init::ones;
  const Slot norm{head.add(vector("norm", c.hidden_size, init, {part_of_row("model.norm.weight", 0, c.hidden_size)}))};
  const int matrix = c.tie_word_embeddings ? head.share(embedding.indices()[0])
                                           : head.add(vocabulary_matrix("lm_head", "lm_head.weight"));
  chain.units.push_back(std::make_unique<TransformerHead>(facts, norm, matrix, "head", head.indices()));
  if (facts.float_gradients) give_float_gradients(chain.parameters);
  return chain;
}

}  // namespace trireme
