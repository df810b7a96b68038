#include "kernels/cuda/norm.cuh"

namespace trireme::kernels::cuda {

template <class T>
void layernorm_forward(int64_t N, int64_t C, const T* x, const T* w, const T* b, double eps, T* y,
                       typename AccumulatorOf<T>::type* mean, typename AccumulatorOf<T>::type* rstd) {
  norm_forward<true>("layernorm_forward", NormArrays<Native<T>>{.shape = {.N = N, .C = C},
                                                                .x = native(x),
                                                                .w = native(w),
                                                                .plus = 0,
                                                                .b = native(b),
                                                                .mean = mean,
                                                                .rstd = rstd,
                                                                .eps = static_cast<float>(eps),
                                                                .y = native(y)});
}

template <class T>
void layernorm_backward(int64_t N, int64_t C, const T* x, const T* w, const T* b,
                        const typename AccumulatorOf<T>::type* mean, const typename AccumulatorOf<T>::type* rstd,
                        const T* dy, const T* addend, T* dx, T* dw, bool add_dw, T* db, bool add_db, T* y) {
  norm_backward<true>("layernorm_backward",
                      NormArrays<Native<T>>{.shape = {.N = N, .C = C},
                                            .x = native(x),
                                            .w = native(w),
                                            .plus = 0,
                                            .b = native(b),
                                            .mean = const_cast<float*>(mean),
                                            .rstd = const_cast<float*>(rstd),
                                            .y = native(y),
                                            .dy = native(dy),
                                            .addend = native(addend),
                                            .dx = native(dx)},
                      {ColumnSum<Native<T>>{native(dw), add_dw}, ColumnSum<Native<T>>{native(db), add_db}});
}

#define TRIREME_INSTANCES(T)                                                                                       \
  template void layernorm_forward(int64_t, int64_t, const T*, const T*, const T*, double, T*,                      \
                                  typename AccumulatorOf<T>::type*, typename AccumulatorOf<T>::type*);             \
  template void layernorm_backward(int64_t, int64_t, const T*, const T*, const T*,                                 \
                                   const typename AccumulatorOf<T>::type*, const typename AccumulatorOf<T>::type*, \
                                   const T*, const T*, T*, T*, bool, T*, bool, T*);
TRIREME_INSTANCES(float)
TRIREME_INSTANCES(bfloat16)
TRIREME_INSTANCES(float16)

}  // namespace trireme::kernels::cuda
