// Lays tensors out in one run of bytes, each at a multiple of 64. A unit has one function that places its tensors; it
// is called with a base to run and without one to ask for the size, so the two cannot disagree.
#pragma once
#include <cstddef>
#include <initializer_list>

#include "chain/tensor.h"

namespace trireme {

// The type in which sums over elements of dtype are kept.
constexpr DType accumulator_of(DType dtype) {
  return dtype == DType::f64 ? DType::f64 : DType::f32;
}

class MemoryLayout {
 public:
  explicit MemoryLayout(std::byte* base = nullptr) : base_(base) {}  // nullptr: only the size is wanted

  Tensor place(DType dtype, std::initializer_list<std::int64_t> shape) {
    Tensor tensor(base_ ? base_ + size_ : nullptr, dtype, shape);
    size_ += (tensor.bytes() + 63) / 64 * 64;
    return tensor;
  }
  std::int64_t size() const { return size_; }  // bytes so far

 private:
  std::byte* base_;
  std::int64_t size_ = 0;
};

// The same elements as a matrix.
inline Tensor as_matrix(const Tensor& tensor, std::int64_t rows, std::int64_t columns) {
  TRIREME_CHECK(tensor.numel() == rows * columns, "a tensor has another number of elements than its matrix");
  return Tensor(tensor.data, tensor.dtype, {rows, columns});
}

}  // namespace trireme
