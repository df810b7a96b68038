#include "layers/linear.h"

#include <algorithm>

#include "kernels/kernels.h"
#include "layout/dispatch.h"

namespace trireme {

void linear_forward(const Tensor& x, const LinearWeights& w, const Tensor& y, const Tensor& addend) {
  const std::int64_t N = x.sizes[0], I = x.sizes[1], O = y.sizes[1], ldw = w.input_major ? O : I;
  dispatch(x.dtype, [&]<class T>(T) {
    kernels::gemm<T>(false, !w.input_major, N, O, I, x.as<T>(), I, w.weight.as<T>(), ldw, y.as<T>(), O, addend.as<T>(),
                     w.bias.as<T>());
  });
}

void linear_backward_input(const Tensor& dy, const LinearWeights& w, const Tensor& dx) {
  const std::int64_t N = dy.sizes[0], O = dy.sizes[1], I = dx.sizes[1], ldw = w.input_major ? O : I;
  dispatch(dy.dtype, [&]<class T>(T) {
    kernels::gemm(false, w.input_major, N, I, O, dy.as<T>(), O, w.weight.as<T>(), ldw, dx.as<T>(), I);
  });
}

void linear_backward_weight(const Tensor& dy, const Tensor& x, const LinearWeights& w, const LinearGradients& dw) {
  const std::int64_t N = dy.sizes[0], O = dy.sizes[1], I = x.sizes[1];
  dispatch(dy.dtype, [&]<class T>(T) {
    T* gradient = dw.weight.tensor.as<T>();
    const T* addend = dw.weight.add ? gradient : nullptr;
    if (dw.weight.is_wanted() && w.input_major) {
      kernels::gemm(true, false, I, O, N, x.as<T>(), I, dy.as<T>(), O, gradient, O, addend);
    } else if (dw.weight.is_wanted()) {
      kernels::gemm(true, false, O, I, N, dy.as<T>(), O, x.as<T>(), I, gradient, I, addend);
    }
    if (w.bias.data != nullptr && dw.bias.is_wanted()) {
      kernels::table<T>().bias_backward(N, O, dy.as<T>(), dw.bias.tensor.as<T>(), dw.bias.add);
    }
  });
}

std::int64_t linear_scratch_bytes(DType dtype, std::int64_t N, std::int64_t I, std::int64_t O, int threads) {
  const auto scratch = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
    return kernels::product_scratch(dtype, true, m, n, k, threads);
  };
  return std::max({scratch(N, O, I), scratch(N, I, O), scratch(O, I, N), scratch(I, O, N)});
}

std::array<kernels::Product, 3> linear_products(DType dtype, std::int64_t N, std::int64_t I, std::int64_t O,
                                                bool input_major, bool has_bias) {
  const std::int64_t ldw = input_major ? O : I;
  const std::int64_t dx_columns = input_major ? I : O, dw_columns = input_major ? O : I;  // of x or dy, of the other
  return {kernels::Product{dtype, dtype, false, !input_major, has_bias, N, O, I, I, ldw, O},
          kernels::Product{dtype, dtype, false, input_major, false, N, I, O, O, ldw, I},
          kernels::Product{dtype, dtype, true, false, false, dx_columns, dw_columns, N, dx_columns, dw_columns,
                           dw_columns}};
}

void linear_forward(const Tensor& x, const Tensor& w, const Tensor& y, const Tensor& addend) {
  linear_forward(x, LinearWeights{w, {}}, y, addend);
}
void linear_backward_input(const Tensor& dy, const Tensor& w, const Tensor& dx) {
  linear_backward_input(dy, LinearWeights{w, {}}, dx);
}
void linear_backward_weight(const Tensor& dy, const Tensor& x, const GradientPlace& dw) {
  linear_backward_weight(dy, x, LinearWeights{}, {dw, {}});
}

}  // namespace trireme
