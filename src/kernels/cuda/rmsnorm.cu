#include "kernels/cuda/norm.cuh"

namespace trireme::kernels::cuda {

template <class T>
void rmsnorm_forward(const NormShape& shape, const T* x, const T* w, double eps, T* y,
                     typename AccumulatorOf<T>::type* rstd) {
  norm_forward<false>("rmsnorm_forward", NormArrays<Native<T>>{.shape = shape,
                                                               .x = native(x),
                                                               .w = native(w),
                                                               .plus = shape.one_plus ? 1.0f : 0.0f,
                                                               .rstd = rstd,
                                                               .eps = static_cast<float>(eps),
                                                               .y = native(y)});
}

template <class T>
void rmsnorm_backward(const NormShape& shape, const T* x, const T* w, const typename AccumulatorOf<T>::type* rstd,
                      const T* dy, const T* addend, T* dx, T* dw, bool add_dw, T* y) {
  norm_backward<false>("rmsnorm_backward",
                       NormArrays<Native<T>>{.shape = shape,
                                             .x = native(x),
                                             .w = native(w),
                                             .plus = shape.one_plus ? 1.0f : 0.0f,
                                             .rstd = const_cast<float*>(rstd),
                                             .y = native(y),
                                             .dy = native(dy),
                                             .addend = native(addend),
                                             .dx = native(dx)},
                       {ColumnSum<Native<T>>{native(dw), add_dw}, {}});
}

#define TRIREME_INSTANCES(T)                                                                                           \
  template void rmsnorm_forward(const NormShape&, const T*, const T*, double, T*, float*);                             \
  template void rmsnorm_backward(const NormShape&, const T*, const T*, const float*, const T*, const T*, T*, T*, bool, \
                                 T*);
TRIREME_INSTANCES(float)
TRIREME_INSTANCES(bfloat16)
TRIREME_INSTANCES(float16)

}  // namespace trireme::kernels::cuda
