#include "kernels/cpu/vector.h"
#include "kernels/level.h"

namespace trireme::kernels::TRIREME_LEVEL {

template <class T>
void embedding_forward(int64_t N, int64_t C, const int32_t* ids, const T* w, T* y) {
  parallel_ranges(N, N * C, [=](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) memcpy(static_cast<void*>(y + n * C), w + ids[n] * C, C * sizeof(T));
  });
}

namespace {

// The rows of each id, in order, by a counting sort: rows first[v] .. first[v + 1] - 1 of order belong to id v.
void sort_by_id(int64_t N, int64_t V, const int32_t* ids, int32_t* first, int32_t* order) {
  memset(first, 0, (V + 2) * sizeof(int32_t));
  for (int64_t n = 0; n < N; ++n) ++first[ids[n] + 2];
  for (int64_t v = 2; v <= V; ++v) first[v] += first[v - 1];
  for (int64_t n = 0; n < N; ++n) order[first[ids[n] + 1]++] = static_cast<int32_t>(n);
}

template <class T, class G, class Lanes>
TRIREME_INLINE void sum_rows(int64_t C, const int32_t* rows, int64_t count, const T* dy, G* dw, bool add, Lanes lanes) {
  VectorOf<T> sum = {};
  for (int64_t i = 0; i < count; ++i) sum = sum + load(dy + rows[i] * C, lanes);
  if (add) sum = sum + load(dw, lanes);
  store(dw, sum, lanes);
}

}  // namespace

template <class T, class G>
void embedding_backward(int64_t N, int64_t C, int64_t V, const int32_t* ids, const T* dy, G* dw, bool add,
                        void* workspace) {
  int32_t* first = static_cast<int32_t*>(workspace);
  int32_t* order = first + V + 2;
  sort_by_id(N, V, ids, first, order);
  parallel_ranges(V, N * C + (add ? V : V * C), [=](int64_t begin, int64_t end) {
    for (int64_t v = begin; v < end; ++v) {
      const int64_t count = first[v + 1] - first[v];
      if (count == 0) {
        if (!add) memset(static_cast<void*>(dw + v * C), 0, C * sizeof(G));
        continue;
      }
      for_each_vector<kLanesOf<T>>(
          C, [=](int64_t c, auto lanes) { sum_rows(C, order + first[v], count, dy + c, dw + v * C + c, add, lanes); });
    }
  });
}

#define TRIREME_BACKWARD(T, G) \
  template void embedding_backward(int64_t, int64_t, int64_t, const int32_t*, const T*, G*, bool, void*);
#define TRIREME_INSTANCES(T)                                                       \
  template void embedding_forward(int64_t, int64_t, const int32_t*, const T*, T*); \
  TRIREME_BACKWARD(T, T)
TRIREME_INSTANCES(float)
TRIREME_INSTANCES(bfloat16)
TRIREME_INSTANCES(float16)
TRIREME_INSTANCES(double)
TRIREME_BACKWARD(bfloat16, float)
TRIREME_BACKWARD(float16, float)

}  // namespace trireme::kernels::TRIREME_LEVEL
