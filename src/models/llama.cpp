#include "models/llama.h"

#include <cmath>
#include <string>
#include <utility>

#include "kernels/kernels.h"
#include "models/llama_units.h"

namespace trireme {
namespace {

constexpr std::int64_t kVocabularyPadding = 128;

void check_range(const char* name, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return;
  throw Error(1201, std::string("model.") + name,
              std::to_string(value) + " is outside " + std::to_string(least) + " .. " + std::to_string(most));
}

void check_positive(const char* name, double value) {
  if (value > 0 && std::isfinite(value)) return;
  throw Error(1201, std::string("model.") + name, std::to_string(value) + " is not a positive number");
}

void refuse_what_is_not_built(const LlamaConfig& c) {
  const auto refuse = [](const char* name, bool wanted) {
    if (wanted) throw Error(1201, std::string("model.") + name, "is not built yet");
  };
  refuse("activation", c.activation != Activation::silu);
  refuse("qkv_bias", c.qkv_bias);
  refuse("attention_output_bias", c.attention_output_bias);
  refuse("mlp_bias", c.mlp_bias);
  refuse("query_key_norms", c.query_key_norms);
  refuse("one_plus_norm_weights", c.one_plus_norm_weights);
  refuse("post_norms", c.post_norms);
  refuse("embedding_scale", c.embedding_scale != 1);
  refuse("attention_scale", c.attention_scale != 0);
  refuse("attention_soft_cap", c.attention_soft_cap != 0);
  refuse("logit_soft_cap", c.logit_soft_cap != 0);
  refuse("attention_dropout", c.attention_dropout != 0);
  refuse("windows", !c.windows.empty());
  refuse("rope_scaling", c.rope.scaling.kind != RopeScaling::Kind::none || c.windowed_rope);
}

// Bounds that keep every product of two sizes below 2^48, and every matrix within BLAS's 32-bit sizes.
LlamaConfig checked(LlamaConfig c) {
  refuse_what_is_not_built(c);
  constexpr std::int64_t kLargestWidth = 1 << 20, kLargestVocabulary = 1 << 24;
  check_range("vocabulary", c.vocabulary, 1, kLargestVocabulary);
  check_range("hidden_size", c.hidden_size, 1, kLargestWidth);
  check_range("intermediate_size", c.intermediate_size, 1, kLargestWidth);
  check_range("num_layers", c.num_layers, 1, 4096);
  check_range("num_heads", c.num_heads, 1, 4096);
  check_range("num_key_value_heads", c.num_key_value_heads, 1, c.num_heads);
  check_range("head_dim", c.head_dim, 0, 4096);
  check_range("max_positions", c.max_positions, 1, 1 << 22);
  check_range("loss_chunk_tokens", c.loss_chunk_tokens, 1, kLargestVocabulary);
  check_positive("rope_theta", c.rope.theta);
  check_positive("rms_norm_eps", c.rms_norm_eps);
  if (c.init_std != 0) check_positive("init_std", c.init_std);
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
  return c;
}

// A logical matrix that begins at a row of its storage matrix and is as wide.
LogicalTensor rows_of(std::string name, std::int64_t first, std::int64_t rows, std::int64_t columns) {
  return {std::move(name), {rows, columns}, {first, first + rows, 0, columns}};
}

ParameterSpec matrix(std::string name, std::int64_t rows, std::int64_t columns, double init_std,
                     std::vector<LogicalTensor> logical) {
  return {std::move(name), rows, columns, std::move(logical), Init::normal, init_std, true, true};
}

ParameterSpec norm(std::string name, std::int64_t C, std::string logical) {
  return {std::move(name), 1, C, {{std::move(logical), {C}, {0, 1, 0, C}}}, Init::ones, 0.0, false, true};
}

std::vector<ParameterSpec> block_parameters(const LlamaConfig& c, std::int64_t layer) {
  const std::string own = "layers." + std::to_string(layer) + ".", theirs = "model." + own;
  const std::int64_t C = c.hidden_size, F = c.intermediate_size;
  const std::int64_t Q = c.num_heads * c.head_dim, KV = c.num_key_value_heads * c.head_dim;
  const double residual_std = c.init_std / std::sqrt(2.0 * static_cast<double>(c.num_layers));
  return {
      norm(own + "input_norm", C, theirs + "input_layernorm.weight"),
      matrix(
          own + "qkv", Q + 2 * KV, C, c.init_std,
          {rows_of(theirs + "self_attn.q_proj.weight", 0, Q, C), rows_of(theirs + "self_attn.k_proj.weight", Q, KV, C),
           rows_of(theirs + "self_attn.v_proj.weight", Q + KV, KV, C)}),
      matrix(own + "attention_output", C, Q, residual_std, {rows_of(theirs + "self_attn.o_proj.weight", 0, C, Q)}),
      norm(own + "post_attention_norm", C, theirs + "post_attention_layernorm.weight"),
      matrix(own + "gate_up", 2 * F, C, c.init_std,
             {rows_of(theirs + "mlp.gate_proj.weight", 0, F, C), rows_of(theirs + "mlp.up_proj.weight", F, F, C)}),
      matrix(own + "down", C, F, residual_std, {rows_of(theirs + "mlp.down_proj.weight", 0, C, F)}),
  };
}

}  // namespace

Chain make_llama(const LlamaConfig& config, DType compute_dtype) {
  const LlamaConfig c = checked(config);
  if (compute_dtype != DType::f32 && compute_dtype != DType::bf16 && compute_dtype != DType::f64) {
    throw Error(1201, "compute dtype", std::string(to_string(compute_dtype)) + " is not one that a Llama computes in",
                "take float32 or bfloat16");
  }
  LlamaFacts facts{c, compute_dtype};
  facts.padded_vocabulary = (c.vocabulary + kVocabularyPadding - 1) / kVocabularyPadding * kVocabularyPadding;
  facts.threads = kernels::num_threads();
  facts.rope = make_rope_table(c.max_positions, c.head_dim, c.rope.theta);

  Chain chain;
  chain.compute_dtype = compute_dtype;
  chain.vocabulary = c.vocabulary;
  chain.max_positions = c.max_positions;
  const auto add = [&chain](ParameterSpec parameter) {
    chain.parameters.push_back(std::move(parameter));
    return static_cast<int>(chain.parameters.size()) - 1;
  };
  const auto vocabulary_matrix = [&](std::string name, std::string logical) {
    return matrix(std::move(name), facts.padded_vocabulary, c.hidden_size, c.init_std,
                  {rows_of(std::move(logical), 0, c.vocabulary, c.hidden_size)});
  };
  const int embedding = add(vocabulary_matrix("embed", "model.embed_tokens.weight"));
  chain.units.push_back(std::make_unique<LlamaEmbedding>(facts, "embed", std::vector<int>{embedding}));
  for (std::int64_t layer = 0; layer < c.num_layers; ++layer) {
    std::vector<int> indices;
    for (ParameterSpec& parameter : block_parameters(c, layer)) indices.push_back(add(std::move(parameter)));
    chain.units.push_back(std::make_unique<LlamaBlock>(facts, "layers." + std::to_string(layer), std::move(indices)));
  }
  const int final_norm = add(norm("norm", c.hidden_size, "model.norm.weight"));
  const int head = c.tie_word_embeddings ? embedding : add(vocabulary_matrix("lm_head", "lm_head.weight"));
  chain.units.push_back(std::make_unique<LlamaHead>(facts, "head", std::vector<int>{final_norm, head}));
  return chain;
}

}  // namespace trireme
