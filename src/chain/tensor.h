// A view of memory that somebody else owns: a pointer, an element type and a shape. Contiguous, row-major.
//
// Not at::Tensor: the engine plans all memory, views are made anew for each instruction, and the hot path compiles in
// seconds. Where LibTorch is wanted, wrap the pointer there.
#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>

#include "base/error.h"
#include "layout/dtype.h"

namespace trireme {

struct Tensor {
  void* data = nullptr;
  DType dtype = DType::f32;
  int num_dims = 0;
  std::array<std::int64_t, 4> sizes{};

  Tensor() = default;
  Tensor(void* memory, DType type, std::initializer_list<std::int64_t> shape);  // at most 4 dimensions

  std::int64_t numel() const;
  std::int64_t bytes() const { return numel() * size_of(dtype); }
  template <class T>
  T* as() const {
    TRIREME_CHECK(data == nullptr || dtype == dtype_of<T>, "tensor view asked for another element type than it has");
    return static_cast<T*>(data);
  }
};

}  // namespace trireme
