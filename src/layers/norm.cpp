#include "layers/norm.h"

#include "kernels/kernels.h"
#include "layers/dispatch.h"

namespace trireme {

void rmsnorm_forward(const Tensor& x, const Tensor& w, double eps, const Tensor& y, const Tensor& rstd) {
  dispatch(x.dtype, [&]<class T>(T) {
    using Acc = typename kernels::AccumulatorOf<T>::type;
    kernels::table<T>().rmsnorm_forward(x.sizes[0], x.sizes[1], x.as<T>(), w.as<T>(), eps, y.as<T>(), rstd.as<Acc>());
  });
}

void rmsnorm_backward(const Tensor& x, const Tensor& w, const Tensor& rstd, const Tensor& dy, const Tensor& dx,
                      bool add_dx, const GradientPlace& dw) {
  dispatch(x.dtype, [&]<class T>(T) {
    using Acc = typename kernels::AccumulatorOf<T>::type;
    kernels::table<T>().rmsnorm_backward(x.sizes[0], x.sizes[1], x.as<T>(), w.as<T>(), rstd.as<Acc>(), dy.as<T>(),
                                         dx.as<T>(), add_dx, dw.tensor.as<T>(), dw.add);
  });
}

}  // namespace trireme
