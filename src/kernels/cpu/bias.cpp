#include "kernels/cpu/column_sums.h"
#include "kernels/level.h"

namespace trireme::kernels::TRIREME_LEVEL {

template <class T>
void bias_forward(int64_t N, int64_t C, const T* b, const T* addend, T* y) {
  parallel_ranges(N, N * C, [=](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      T* row = y + n * C;
      if (addend == nullptr) {
        memcpy(static_cast<void*>(row), b, C * sizeof(T));
        continue;
      }
      const T* other = addend + n * C;
      for_each_vector<kLanesOf<T>>(
          C, [=](int64_t c, auto lanes) { store(row + c, load(other + c, lanes) + load(b + c, lanes), lanes); });
    }
  });
}

template <class T>
void bias_backward(int64_t N, int64_t C, const T* dy, T* db, bool add) {
  sum_columns(N, C, db, add,
              [=](VectorOf<T> sum, int64_t n, int64_t c, auto lanes) { return sum + load(dy + n * C + c, lanes); });
}

#define TRIREME_INSTANCES(T)                                            \
  template void bias_forward(int64_t, int64_t, const T*, const T*, T*); \
  template void bias_backward(int64_t, int64_t, const T*, T*, bool);
TRIREME_INSTANCES(float)
TRIREME_INSTANCES(bfloat16)
TRIREME_INSTANCES(float16)
TRIREME_INSTANCES(double)

}  // namespace trireme::kernels::TRIREME_LEVEL
