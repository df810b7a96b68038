// The kernels of one level of the CPU, or of a device (TRIREME_LEVEL: cuda); what each does is said in kernels.h. Each
// is defined in a file of its name and instantiated there for float, bfloat16, float16 and, on the CPU, double.
#pragma once
#include "kernels/kernels.h"

namespace trireme::kernels::TRIREME_LEVEL {

template <class T>
void rmsnorm_forward(const NormShape& shape, const T* x, const T* w, double eps, T* y,
                     typename AccumulatorOf<T>::type* rstd);
template <class T>
void rmsnorm_backward(const NormShape& shape, const T* x, const T* w, const typename AccumulatorOf<T>::type* rstd,
                      const T* dy, const T* addend, T* dx, T* dw, bool add_dw, T* y);
template <class T>
void layernorm_forward(std::int64_t N, std::int64_t C, const T* x, const T* w, const T* b, double eps, T* y,
                       typename AccumulatorOf<T>::type* mean, typename AccumulatorOf<T>::type* rstd);
template <class T>
void layernorm_backward(std::int64_t N, std::int64_t C, const T* x, const T* w, const T* b,
                        const typename AccumulatorOf<T>::type* mean, const typename AccumulatorOf<T>::type* rstd,
                        const T* dy, const T* addend, T* dx, T* dw, bool add_dw, T* db, bool add_db, T* y);
template <class T>
void rope(std::int64_t N, std::int64_t heads, std::int64_t D, std::int64_t row_stride, T* x,
          const std::int32_t* positions, const float* cos_sin, int sign);
template <class T>
void glu_forward(Activation activation, std::int64_t N, std::int64_t F, const T* gate_up, T* y);
template <class T>
void glu_backward(Activation activation, std::int64_t N, std::int64_t F, const T* gate_up, const T* dy, T* dgate_up,
                  T* y);
template <class T>
void activation_forward(Activation activation, std::int64_t n, const T* x, T* y);
template <class T>
void activation_backward(Activation activation, std::int64_t n, const T* x, const T* dy, T* dx, T* y);
template <class T>
void bias_forward(std::int64_t N, std::int64_t C, const T* b, const T* addend, T* y);
template <class T>
void bias_backward(std::int64_t N, std::int64_t C, const T* dy, T* db, bool add);
template <class T>
void scale(std::int64_t n, double factor, T* x);
template <class T>
void soft_cap(std::int64_t N, std::int64_t V, std::int64_t stride, double cap, T* x);
template <class T>
void dropout(std::int64_t B, std::int64_t n, const Dropout& dropout, const T* x, T* y);
template <class T>
void add(std::int64_t n, const T* a, const T* b, T* out);
template <class T>
void attention_forward(const AttentionShape& shape, const Dropout& dropout, const T* qkv, const std::int32_t* starts,
                       T* out, typename AccumulatorOf<T>::type* lse, void* workspace);
template <class T>
void attention_cached(const AttentionShape& shape, const T* qkv, std::byte* const* key_values, const std::int32_t* past,
                      const std::int32_t* starts, T* out, typename AccumulatorOf<T>::type* lse, void* workspace);
template <class T>
void attention_backward(const AttentionShape& shape, const Dropout& dropout, const T* qkv, const std::int32_t* starts,
                        const T* out, const typename AccumulatorOf<T>::type* lse, const T* dout, T* dqkv,
                        void* workspace);
template <class T>
void embedding_forward(std::int64_t N, std::int64_t C, const std::int32_t* ids, const T* w, T* y);
template <class T, class G>
void embedding_backward(std::int64_t N, std::int64_t C, std::int64_t V, const std::int32_t* ids, const T* dy, G* dw,
                        bool add, void* workspace);
template <class T>
void cross_entropy(std::int64_t N, std::int64_t V, std::int64_t stride, double soft_cap, T* logits,
                   const std::int32_t* labels, double grad_scale, double* total);
template <class T>
void cross_entropy_loss(std::int64_t N, std::int64_t V, std::int64_t stride, const T* logits,
                        const std::int32_t* labels, double* total);
template <class T>
void accumulate(std::int64_t n, const T* slot, float* accumulator, bool overwrite);
template <class T>
void accumulate_all(std::int64_t n, int count, const T* const* slots, DType wire, DType sum_dtype, void* sum,
                    bool overwrite);
template <class T>
void cast_from_float(std::int64_t n, const float* x, T* y);
template <class T>
void cast_to_float(std::int64_t n, const T* x, float* y);

void adamw(const OptimizerArguments& a, const Update* update, const OptimizerRun& run);
void adam(const OptimizerArguments& a, const Update* update, const OptimizerRun& run);
void sgd(const OptimizerArguments& a, const Update* update, const OptimizerRun& run);
void adagrad(const OptimizerArguments& a, const Update* update, const OptimizerRun& run);
void lion(const OptimizerArguments& a, const Update* update, const OptimizerRun& run);
void sum_of_squares(std::int64_t n, const void* x, DType dtype, ExactSum* sum);
void set_update(int count, const ExactSum* squares, double loss_scale, double max_norm, Update* update);
void first_in_window(std::int64_t B, std::int64_t T, std::int64_t window, const std::int32_t* starts,
                     const std::int32_t* past, std::int32_t* out);

extern const Table<float> kFloatTable;
extern const Table<bfloat16> kBfloat16Table;
extern const Table<float16> kFloat16Table;
extern const Table<double> kDoubleTable;
extern const FlatTable kFlatTable;

}  // namespace trireme::kernels::TRIREME_LEVEL
