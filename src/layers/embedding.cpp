#include "layers/embedding.h"

#include "kernels/kernels.h"
#include "layout/dispatch.h"

namespace trireme {

void embedding_forward(const std::int32_t* ids, const Tensor& w, const Tensor& y) {
  dispatch(w.dtype, [&]<class T>(T) {
    kernels::table<T>().embedding_forward(y.sizes[0], y.sizes[1], ids, w.as<T>(), y.as<T>());
  });
}

void embedding_backward(const std::int32_t* ids, const Tensor& dy, const GradientPlace& dw, const Tensor& workspace) {
  if (!dw.is_wanted()) return;
  dispatch(dy.dtype, [&]<class T>(T) {
    kernels::table<T>().embedding_backward(dy.sizes[0], dy.sizes[1], dw.tensor.sizes[0], ids, dy.as<T>(),
                                           dw.tensor.as<T>(), dw.add, workspace.data);
  });
}

std::int64_t embedding_workspace_bytes(std::int64_t N, std::int64_t rows, std::int64_t C) {
  return kernels::embedding_workspace(N, rows, C);
}

}  // namespace trireme
