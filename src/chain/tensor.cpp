#include "chain/tensor.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace trireme {

Tensor::Tensor(void* memory, DType type, std::initializer_list<std::int64_t> shape)
    : data(memory), dtype(type), num_dims(static_cast<int>(shape.size())) {
  TRIREME_CHECK(shape.size() <= sizes.size(), "a tensor view has at most four dimensions");
  std::copy(shape.begin(), shape.end(), sizes.begin());
}

std::int64_t Tensor::numel() const {
  return std::accumulate(sizes.begin(), sizes.begin() + num_dims, std::int64_t{1}, std::multiplies<>());
}

}  // namespace trireme
