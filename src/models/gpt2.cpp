#include "models/gpt2.h"

#include <cmath>
#include <string>
#include <utility>

#include "models/parameters.h"
#include "models/transformer.h"

namespace trireme {
namespace {

Gpt2Config checked(Gpt2Config c) {
  check_range("vocabulary", c.vocabulary, 1, kLargestVocabulary);
  check_range("hidden_size", c.hidden_size, 1, kLargestWidth);
  check_range("intermediate_size", c.intermediate_size, 0, kLargestWidth);
  check_range("num_layers", c.num_layers, 1, 4096);
  check_range("num_heads", c.num_heads, 1, 4096);
  check_range("max_positions", c.max_positions, 1, kLargestPositions);
  check_range("loss_chunk_tokens", c.loss_chunk_tokens, 1, kLargestVocabulary);
  check_positive("layer_norm_eps", c.layer_norm_eps);
  check_not_negative("init_std", c.init_std);
  check_probability("embedding_dropout", c.embedding_dropout);
  check_probability("attention_dropout", c.attention_dropout);
  check_probability("residual_dropout", c.residual_dropout);
  if (c.hidden_size % c.num_heads != 0) {
    throw Error(1201, "model.num_heads",
                std::to_string(c.num_heads) + " does not divide hidden_size " + std::to_string(c.hidden_size));
  }
  if (c.intermediate_size == 0) c.intermediate_size = 4 * c.hidden_size;
  return c;
}

TransformerFacts facts_of(const Gpt2Config& c, DType dtype) {
  TransformerFacts f = common_facts(c, dtype);
  f.K = c.num_heads, f.D = c.hidden_size / c.num_heads;
  f.norm = {.eps = c.layer_norm_eps, .centred = true};
  f.mlp = {.activation = c.activation, .gated = false};
  f.input_major = true;
  f.embedding_dropout = c.embedding_dropout;
  f.residual_dropout = c.residual_dropout;
  return f;
}

// A LayerNorm's weight and bias. theirs: "transformer.ln_f".
Slot add_norm(UnitParameters& parameters, const std::string& own, std::int64_t C, const std::string& theirs) {
  return {parameters.add(vector(own, C, Init::ones, {part_of_row(theirs + ".weight", 0, C)})),
          parameters.add(vector(own + "_bias", C, Init::zeros, {part_of_row(theirs + ".bias", 0, C)}))};
}

// A Conv1D: the matrix is [in, out].
Slot add_linear(UnitParameters& parameters, const std::string& own, std::int64_t in, std::int64_t out, double init_std,
                const std::string& theirs) {
  return {parameters.add(matrix(own, in, out, init_std, {rows_of(theirs + ".weight", 0, in, out)})),
          parameters.add(vector(own + "_bias", out, Init::zeros, {part_of_row(theirs + ".bias", 0, out)}))};
}

void add_block(const Gpt2Config& c, const TransformerFacts& facts, std::int64_t layer, Chain& chain) {
  const std::string name = "layers." + std::to_string(layer), own = name + ".";
  const std::string theirs = "transformer.h." + std::to_string(layer) + ".";
  const std::int64_t C = facts.C, F = facts.F;
  const double residual_std = c.init_std / std::sqrt(2.0 * static_cast<double>(c.num_layers));
  UnitParameters parameters(chain);
  BlockFacts b;
  b.norm1 = add_norm(parameters, own + "input_norm", C, theirs + "ln_1");
  b.qkv = add_linear(parameters, own + "qkv", C, 3 * C, c.init_std, theirs + "attn.c_attn");
  b.attention_output = add_linear(parameters, own + "attention_output", C, C, residual_std, theirs + "attn.c_proj");
  b.norm2 = add_norm(parameters, own + "post_attention_norm", C, theirs + "ln_2");
  b.mlp_up = add_linear(parameters, own + "up", C, F, c.init_std, theirs + "mlp.c_fc");
  b.mlp_down = add_linear(parameters, own + "down", F, C, residual_std, theirs + "mlp.c_proj");
  b.attention_scale = c.scale_attention ? 1 / std::sqrt(static_cast<double>(facts.D)) : 1;
  if (c.scale_attention_by_layer) b.attention_scale /= static_cast<double>(layer + 1);
  chain.units.push_back(std::make_unique<TransformerBlock>(facts, std::move(b), name, parameters.indices()));
}

}  // namespace

Chain make_gpt2(const Gpt2Config& config, DType compute_dtype, bool recompute_wide) {
  const Gpt2Config c = checked(config);
  check_compute_dtype(compute_dtype);
  TransformerFacts facts = facts_of(c, compute_dtype);
  facts.recompute_wide = recompute_wide;
  const std::int64_t C = facts.C;
  Chain chain;
  chain.compute_dtype = compute_dtype;
  chain.vocabulary = c.vocabulary;
  chain.max_positions = c.max_positions;
  const auto vocabulary_matrix = [&](const char* name, const char* logical) {
    return matrix(name, facts.padded_vocabulary, C, c.init_std, {rows_of(logical, 0, c.vocabulary, C)});
  };
  UnitParameters embedding(chain);
  embedding.add(vocabulary_matrix("embed", "transformer.wte.weight"));
  embedding.add(
      matrix("positions", c.max_positions, C, c.init_std, {rows_of("transformer.wpe.weight", 0, c.max_positions, C)}));
  chain.units.push_back(std::make_unique<TransformerEmbedding>(facts, "embed", embedding.indices()));
  for (std::int64_t layer = 0; layer < c.num_layers; ++layer) add_block(c, facts, layer, chain);
  UnitParameters head(chain);
  const Slot norm = add_norm(head, "norm", C, "transformer.ln_f");
  const int matrix = c.tie_word_embeddings ? head.share(embedding.indices()[0])
                                           : head.add(vocabulary_matrix("lm_head", "lm_head.weight"));
  chain.units.push_back(std::make_unique<TransformerHead>(facts, norm, matrix, "head", head.indices()));
  if (facts.float_gradients) give_float_gradients(chain.parameters);
  return chain;
}

}  // namespace trireme
