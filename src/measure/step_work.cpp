#include "measure/step_work.h"

#include <algorithm>

namespace trireme::measure {
namespace {

constexpr std::int64_t kHeadRows = 4096;  // of a chunk of logits: enough for a product's full speed

}  // namespace

ModelShape shape_of(const ModelConfig& config) {
  ModelShape shape;
  if (const auto* llama = std::get_if<LlamaConfig>(&config)) {
    const LlamaConfig& c = *llama;
    shape = {.C = c.hidden_size,
             .F = c.intermediate_size,
             .L = c.num_layers,
             .H = c.num_heads,
             .K = c.num_key_value_heads,
             .D = c.head_dim > 0 ? c.head_dim : c.hidden_size / c.num_heads,
             .tied = c.tie_word_embeddings};
  } else {
    const Gpt2Config& c = std::get<Gpt2Config>(config);
    shape = {.C = c.hidden_size,
             .F = c.intermediate_size > 0 ? c.intermediate_size : 4 * c.hidden_size,
             .L = c.num_layers,
             .H = c.num_heads,
             .K = c.num_heads,
             .D = c.hidden_size / c.num_heads,
             .gated = false,
             .tied = c.tie_word_embeddings,
             .rotates = false,
             .input_major = true};
  }
  const Chain chain = make_chain(config, DType::bf16);
  shape.V = chain.parameters.front().rows;  // of the embedding
  for (const ParameterSpec& parameter : chain.parameters) shape.parameters += parameter.numel();
  return shape;
}

double ModelShape::matmul_weights() const {
  return static_cast<double>(L * C * (qkv_width() + H * D + up_width() + F) + V * C);
}

double ModelShape::flops_per_token(std::int64_t T) const {
  return 6 * matmul_weights() + 6 * static_cast<double>(L * H * D * T);
}

std::vector<Product> products_of(const ModelShape& s, std::int64_t tokens) {
  const auto L = static_cast<double>(s.L);
  const std::int64_t rows = std::min(tokens, kHeadRows);
  return {{"qkv", tokens, s.C, s.qkv_width(), L},
          {"attention output", tokens, s.H * s.D, s.C, L},
          {s.gated ? "gate and up" : "up", tokens, s.C, s.up_width(), L},
          {"down", tokens, s.F, s.C, L},
          {"head", rows, s.C, s.V, static_cast<double>(tokens) / static_cast<double>(rows)}};
}

double elementwise_bytes(const ModelShape& s, std::int64_t tokens, std::int64_t element_bytes) {
  const std::int64_t wide = s.up_width();
  const std::int64_t norm = 2 * s.C;           // x; y
  const std::int64_t norm_backward = 4 * s.C;  // x, dy and what it adds to; dx
  const std::int64_t rotation = s.rotates ? 2 * (s.H + s.K) * s.D : 0;
  const std::int64_t activation = wide + s.F, activation_backward = 2 * wide + s.F;
  const std::int64_t block = 2 * norm + 2 * norm_backward + 2 * rotation + activation + activation_backward;
  const std::int64_t embedding = 3 * s.C;                    // rows; y. dy
  const std::int64_t head = norm + norm_backward + 2 * s.V;  // logits in, their gradient out
  const std::int64_t embedding_gradient = (s.tied ? 2 : 1) * s.V * s.C;
  return static_cast<double>((tokens * (s.L * block + embedding + head) + embedding_gradient) * element_bytes);
}

double update_bytes(const ModelShape& s, const UpdateBytes& bytes) {
  return static_cast<double>(s.parameters * (2 * bytes.sum + 2 * (bytes.master + 2 * bytes.moment) + bytes.weights));
}

double floor_seconds(const ModelShape& shape, std::int64_t tokens, std::int64_t micro_batches,
                     std::int64_t element_bytes, const UpdateBytes& update, const StepRates& rates) {
  const double micro_batch =
      rates.products_s + rates.attention_s + elementwise_bytes(shape, tokens, element_bytes) / rates.copy_bytes_per_s;
  return static_cast<double>(micro_batches) * micro_batch + update_bytes(shape, update) / rates.copy_bytes_per_s;
}

}  // namespace trireme::measure
