// What a parameter is, apart from any layout: its storage matrix and the logical (Hugging Face) tensors inside it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace trireme {

// Rows [row_begin, row_end) and columns [column_begin, column_end) of a matrix.
struct Box {
  std::int64_t row_begin = 0, row_end = 0, column_begin = 0, column_end = 0;
  std::int64_t rows() const { return row_end - row_begin; }
  std::int64_t columns() const { return column_end - column_begin; }
  std::int64_t numel() const { return rows() * columns(); }
  bool operator==(const Box&) const = default;
};

// A tensor as other tools name it ("model.layers.0.self_attn.q_proj.weight") and where it lies in the storage matrix.
// shape has one or two dimensions, and box has as many elements: a vector is one row.
struct LogicalTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  Box box;
};

enum class Init : std::uint8_t { zeros, ones, normal };

// The storage matrix is what the GEMM sees: merged QKV, gate and up, vocabulary padded to 128 rows. Elements outside
// every logical box are padding: zero from the start, and their gradients are zero.
struct ParameterSpec {
  std::string name;  // "layers.3.qkv"
  std::int64_t rows = 1, columns = 0;
  std::vector<LogicalTensor> logical;
  Init init = Init::normal;
  double init_std = 0.02;
  bool decay = true;  // weight decay applies (matrices; not norms and biases)
  bool trainable = true;
  bool float_gradient = false;  // its units give its gradient in fp32 though they compute in 16 bits
  std::int64_t numel() const { return rows * columns; }
};

}  // namespace trireme
