#include "layers/dropout.h"

#include "layout/dispatch.h"

namespace trireme {

kernels::Dropout dropout_of(const Batch& batch, double probability, std::uint64_t stream) {
  if (batch.dropout_keys == nullptr) return {};
  return {.probability = probability, .keys = batch.dropout_keys, .stream = stream};
}

void apply_dropout(const kernels::Dropout& dropout, const BatchShape& shape, const Tensor& x, const Tensor& y) {
  dispatch(x.dtype, [&]<class T>(T) {
    kernels::table<T>().dropout(shape.batch, x.numel() / shape.batch, dropout, x.as<T>(), y.as<T>());
  });
}

}  // namespace trireme
