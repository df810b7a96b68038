#include "layers/linear.h"

#include "kernels/kernels.h"
#include "layers/dispatch.h"

namespace trireme {

void linear_forward(const Tensor& x, const Tensor& w, const Tensor& y, bool add) {
  const std::int64_t N = x.sizes[0], I = x.sizes[1], O = w.sizes[0];
  dispatch(x.dtype,
           [&]<class T>(T) { kernels::gemm(false, true, N, O, I, x.as<T>(), I, w.as<T>(), I, y.as<T>(), O, add); });
}

void linear_backward_input(const Tensor& dy, const Tensor& w, const Tensor& dx) {
  const std::int64_t N = dy.sizes[0], O = w.sizes[0], I = w.sizes[1];
  dispatch(dy.dtype, [&]<class T>(T) {
    kernels::gemm(false, false, N, I, O, dy.as<T>(), O, w.as<T>(), I, dx.as<T>(), I, false);
  });
}

void linear_backward_weight(const Tensor& dy, const Tensor& x, const GradientPlace& dw) {
  const std::int64_t N = dy.sizes[0], O = dy.sizes[1], I = x.sizes[1];
  dispatch(dy.dtype, [&]<class T>(T) {
    kernels::gemm(true, false, O, I, N, dy.as<T>(), O, x.as<T>(), I, dw.tensor.as<T>(), I, dw.add);
  });
}

}  // namespace trireme
