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

namespace {

// a^T @ b, in the gradient's own type.
void weight_product(const Tensor& a, const Tensor& b, const GradientPlace& gradient) {
  if (!gradient.is_wanted()) return;
  const std::int64_t k = a.sizes[0], m = a.sizes[1], n = b.sizes[1];
  dispatch(a.dtype, [&]<class T>(T) {
    if (gradient.tensor.dtype == a.dtype) {
      T* sum = gradient.tensor.as<T>();
      kernels::gemm(true, false, m, n, k, a.as<T>(), m, b.as<T>(), n, sum, n, gradient.add ? sum : nullptr);
    } else {
      kernels::gemm_unrounded(true, false, m, n, k, a.as<T>(), m, b.as<T>(), n,
                              gradient.tensor.as<typename kernels::AccumulatorOf<T>::type>(), n, gradient.add);
    }
  });
}

}  // namespace

void linear_backward_weight(const Tensor& dy, const Tensor& x, const LinearWeights& w, const LinearGradients& dw) {
  weight_product(w.input_major ? x : dy, w.input_major ? dy : x, dw.weight);
  if (w.bias.data == nullptr || !dw.bias.is_wanted()) return;
  dispatch(dy.dtype, [&]<class T>(T) {
    kernels::table<T>().bias_backward(dy.sizes[0], dy.sizes[1], dy.as<T>(), dw.bias.tensor.as<T>(), dw.bias.add);
  });
}

std::int64_t linear_scratch_bytes(DType dtype, DType gradient, std::int64_t N, std::int64_t I, std::int64_t O,
                                  int threads) {
  const auto scratch = [&](DType result, std::int64_t m, std::int64_t n, std::int64_t k) {
    return kernels::product_scratch(dtype, result == dtype, m, n, k, threads);
  };
  return std::max(
      {scratch(dtype, N, O, I), scratch(dtype, N, I, O), scratch(gradient, O, I, N), scratch(gradient, I, O, N)});
}

std::array<kernels::Product, 3> linear_products(DType dtype, DType gradient, std::int64_t N, std::int64_t I,
                                                std::int64_t O, bool input_major, bool has_bias) {
  const std::int64_t ldw = input_major ? O : I;
  const std::int64_t dx_columns = input_major ? I : O, dw_columns = input_major ? O : I;  // of x or dy, of the other
  return {kernels::Product{dtype, dtype, false, !input_major, has_bias, N, O, I, I, ldw, O},
          kernels::Product{dtype, dtype, false, input_major, false, N, I, O, O, ldw, I},
          kernels::Product{dtype, gradient, true, false, false, dx_columns, dw_columns, N, dx_columns, dw_columns,
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
