// What the architectures share in reading their configurations and declaring their parameters. Internal to models/.
#pragma once
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "chain/chain.h"
#include "models/transformer.h"

namespace trireme {

// Bounds that keep every product of two sizes below 2^48, and every matrix within BLAS's 32-bit sizes.
inline constexpr std::int64_t kLargestWidth = 1 << 20, kLargestVocabulary = 1 << 24, kLargestPositions = 1 << 22;

// Errors TR1201 for a value of model.NAME.
void check_range(const char* name, std::int64_t value, std::int64_t least, std::int64_t most);
void check_positive(const char* name, double value);
void check_not_negative(const char* name, double value);
void check_probability(const char* name, double value);  // 0 .. 1, 1 excluded
void check_compute_dtype(DType dtype);

// A logical matrix that begins at a row of its storage matrix and is as wide, and a vector inside a storage row.
LogicalTensor rows_of(std::string name, std::int64_t first, std::int64_t rows, std::int64_t columns);
LogicalTensor part_of_row(std::string name, std::int64_t first, std::int64_t columns);
ParameterSpec matrix(std::string name, std::int64_t rows, std::int64_t columns, double init_std,
                     std::vector<LogicalTensor> logical);
ParameterSpec vector(std::string name, std::int64_t columns, Init init, std::vector<LogicalTensor> logical);
void give_float_gradients(std::vector<ParameterSpec>& parameters);  // to the matrices

std::int64_t padded_vocabulary(std::int64_t vocabulary);

// What every family's configuration says in the same words; the rest is the family's own.
template <typename Config>
TransformerFacts common_facts(const Config& c, DType dtype) {
  TransformerFacts f;
  f.dtype = dtype;
  f.threads = kernels::num_threads();
  f.vocabulary = c.vocabulary;
  f.padded_vocabulary = padded_vocabulary(c.vocabulary);
  f.max_positions = c.max_positions;
  f.loss_chunk_tokens = c.loss_chunk_tokens;
  f.deterministic = c.deterministic;
  f.float_gradients = c.float_gradients && size_of(dtype) == 2;
  f.C = c.hidden_size, f.F = c.intermediate_size, f.H = c.num_heads;
  f.attention_dropout = c.attention_dropout;
  return f;
}

// The parameters of one unit, as they are declared one after the other.
class UnitParameters {
 public:
  explicit UnitParameters(Chain& chain) : chain_(chain) {}
  int add(ParameterSpec parameter);  // its place in the unit
  int share(int parameter);          // one that another unit has declared: an index into the chain's
  std::vector<int> indices() const { return indices_; }

 private:
  Chain& chain_;
  std::vector<int> indices_;
};

}  // namespace trireme
