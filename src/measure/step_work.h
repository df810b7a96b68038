// What a training step of a model must compute and move, from its shape alone, and the least time that takes.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "models/model.h"

namespace trireme::measure {

// A model as a count of what its step does.
struct ModelShape {
  std::int64_t C = 0, F = 0, L = 0, H = 0, K = 0, D = 0;  // as in kernels.h
  std::int64_t V = 0;                                     // rows of the stored matrix, padding too
  bool gated = true, tied = true, rotates = true, input_major = false;
  std::int64_t parameters = 0;  // that are stored: padding too, tied ones once

  std::int64_t qkv_width() const { return (H + 2 * K) * D; }
  std::int64_t up_width() const { return gated ? 2 * F : F; }
  // Weights that are in a matrix product of every token: those of the blocks and of the head, not the embedding's.
  double matmul_weights() const;
  // 6 x matmul weights + 6 L q T, q = H D: forward and backward, each pair of a causal attention's positions once.
  double flops_per_token(std::int64_t T) const;
};
ModelShape shape_of(const ModelConfig& config);

// y[rows, outputs] = x[rows, inputs] w^T, and the two products of its backward, `times` in a micro-batch.
struct Product {
  const char* name;
  std::int64_t rows, inputs, outputs;
  double times;
};
// Of a micro-batch of so many tokens. The head's rows come in chunks.
std::vector<Product> products_of(const ModelShape& shape, std::int64_t tokens);

// What a micro-batch moves at the least beside its products and attention: each norm, rotation, activation, loss and
// embedding reads its operands once and writes its results once, forward and backward, in the compute dtype.
double elementwise_bytes(const ModelShape& shape, std::int64_t tokens, std::int64_t element_bytes);

// Bytes of an element of what AdamW reads and writes.
struct UpdateBytes {
  std::int64_t sum = 4, master = 4, moment = 4;
  std::int64_t weights = 2;  // that are written beside the masters; 0: units read the masters
};
// What the norm of the gradients and AdamW move a step: the sums once for the norm, then sums, masters and both moments
// once, the last three written again, and the weights.
double update_bytes(const ModelShape& shape, const UpdateBytes& bytes);

// Measured on the device that the floor is of.
struct StepRates {
  double products_s = 0, attention_s = 0;  // all of a micro-batch's, forward and backward
  double copy_bytes_per_s = 0;             // read and written
};
// The least time of a step of one rank: micro_batches x (products + attention + elementwise_bytes / copy rate)
// + update_bytes / copy rate. Nothing overlaps, and nothing waits.
double floor_seconds(const ModelShape& shape, std::int64_t tokens, std::int64_t micro_batches,
                     std::int64_t element_bytes, const UpdateBytes& update, const StepRates& rates);

}  // namespace trireme::measure
