#include "kernels/cpu/random.h"
#include "kernels/level.h"

namespace trireme::kernels::TRIREME_LEVEL {

template <class T>
void dropout(int64_t B, int64_t n, const Dropout& dropout, const T* x, T* y) {
  const int64_t groups = (n + kDropoutGroup - 1) / kDropoutGroup;
  const Dropout drop = dropout;
  parallel_ranges(B * groups, B * n, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t sample = i / groups, group = i % groups, first = group * kDropoutGroup;
      Acc<T> factors[kDropoutGroup];
      dropout_group(DropoutRule<Acc<T>>(drop, sample), group, factors);
      const T* from = x + sample * n + first;
      T* to = y + sample * n + first;
      for_each_vector<kLanesOf<T>>(smaller_of(kDropoutGroup, n - first), [&](int64_t e, auto lanes) {
        store(to + e, load(from + e, lanes) * load(factors + e), lanes);
      });
    }
  });
}

#define TRIREME_INSTANCES(T) template void dropout(int64_t, int64_t, const Dropout&, const T*, T*);
TRIREME_INSTANCES(float)
TRIREME_INSTANCES(bfloat16)
TRIREME_INSTANCES(float16)
TRIREME_INSTANCES(double)

}  // namespace trireme::kernels::TRIREME_LEVEL
