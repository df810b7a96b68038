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
    const auto run = [&](auto kernel, auto* gradient) {
      kernel(dy.sizes[0], dy.sizes[1], dw.tensor.sizes[0], ids, dy.as<T>(), gradient, dw.add, workspace.data);
    };
    if (dw.tensor.dtype == dy.dtype) return run(kernels::table<T>().embedding_backward, dw.tensor.as<T>());
    run(kernels::table<T>().embedding_backward_unrounded, dw.tensor.as<typename kernels::AccumulatorOf<T>::type>());
  });
}

std::int64_t embedding_workspace_bytes(std::int64_t N, std::int64_t rows, std::int64_t C) {
  return kernels::embedding_workspace(N, rows, C);
}

}  // namespace trireme
