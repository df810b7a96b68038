// add, scale, soft_cap, accumulate and the casts.
#include "kernels/cpu/vector.h"
#include "kernels/level.h"

namespace trireme::kernels::TRIREME_LEVEL {
namespace {

template <class T>
constexpr bool kIsDouble = sizeof(T) == sizeof(double);  // exists for tests: one element at a time is fast enough

}  // namespace

template <class T>
void add(int64_t n, const T* a, const T* b, T* out) {
  parallel_elements(n, [=](int64_t begin, int64_t end) {
    for_each_vector<kLanesOf<T>>(end - begin, [=](int64_t i, auto lanes) {
      i += begin;
      store(out + i, load(a + i, lanes) + load(b + i, lanes), lanes);
    });
  });
}

template <class T>
void scale(int64_t n, double factor, T* x) {
  const auto factors = splat(static_cast<Acc<T>>(factor));
  parallel_elements(n, [=](int64_t begin, int64_t end) {
    for_each_vector<kLanesOf<T>>(end - begin, [=](int64_t i, auto lanes) {
      i += begin;
      store(x + i, load(x + i, lanes) * factors, lanes);
    });
  });
}

template <class T>
void soft_cap(int64_t N, int64_t V, int64_t stride, double cap, T* x) {
  const auto caps = splat(static_cast<Acc<T>>(cap));
  parallel_ranges(N, N * V, [=](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      T* row = x + n * stride;
      for_each_vector<kLanesOf<T>>(
          V, [=](int64_t v, auto lanes) { store(row + v, caps * tangent(load(row + v, lanes) / caps), lanes); });
    }
  });
}

template <class T>
void accumulate(int64_t n, const T* slot, float* accumulator, bool overwrite) {
  if (overwrite) return cast_to_float(n, slot, accumulator);
  if constexpr (kIsDouble<T>) {
    for (int64_t i = 0; i < n; ++i) accumulator[i] = static_cast<float>(accumulator[i] + slot[i]);
  } else {
    parallel_elements(n, [=](int64_t begin, int64_t end) {
      for_each_vector<kLanesOf<T>>(end - begin, [=](int64_t i, auto lanes) {
        i += begin;
        store(accumulator + i, load(accumulator + i, lanes) + load(slot + i, lanes), lanes);
      });
    });
  }
}

namespace {

constexpr int64_t kPart = 512;  // elements that are in floats at a time

template <class T>
TRIREME_INLINE void widen(int64_t n, const T* x, float* y) {
  if constexpr (kIsDouble<T>) {
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(x[i]);
  } else {
    for_each_vector<kLanesOf<T>>(n, [=](int64_t i, auto lanes) { store(y + i, load(x + i, lanes), lanes); });
  }
}

template <class N>
TRIREME_INLINE void narrow(int64_t n, const float* x, N* y) {
  for_each_vector<kLanesOf<N>>(n, [=](int64_t i, auto lanes) { store(y + i, load(x + i, lanes), lanes); });
}

template <class N>
TRIREME_INLINE void round_to(int64_t n, float* x) {
  N narrowed[kPart];
  narrow(n, x, narrowed);
  widen(n, narrowed, x);
}

// n <= kPart.
template <class T>
void accumulate_part(int64_t n, int64_t begin, int count, const T* const* slots, DType wire, DType sum_dtype, void* sum,
                     bool overwrite) {
  float total[kPart], value[kPart];
  auto* wide = static_cast<float*>(sum) + begin;
  auto* half = static_cast<bfloat16*>(sum) + begin;
  const bool is_half = sum_dtype == DType::bf16;
  if (!overwrite) is_half ? widen(n, half, total) : widen(n, wide, total);
  for (int slot = 0; slot < count; ++slot) {
    widen(n, slots[slot] + begin, value);
    if (wire == DType::bf16) round_to<bfloat16>(n, value);
    if (wire == DType::f16) round_to<float16>(n, value);
    const bool replaces = overwrite && slot == 0;
    for (int64_t i = 0; i < n; ++i) total[i] = replaces ? value[i] : total[i] + value[i];
    if (is_half) round_to<bfloat16>(n, total);
  }
  is_half ? narrow(n, total, half) : narrow(n, total, wide);
}

}  // namespace

template <class T>
void accumulate_all(int64_t n, int count, const T* const* slots, DType wire, DType sum_dtype, void* sum,
                    bool overwrite) {
  if (sum_dtype == DType::f32 && (wire == DType::f32 || wire == dtype_of<T>)) {
    for (int i = 0; i < count; ++i) accumulate(n, slots[i], static_cast<float*>(sum), overwrite && i == 0);
    return;
  }
  parallel_elements(n, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kPart) {
      accumulate_part(smaller_of(kPart, end - i), i, count, slots, wire, sum_dtype, sum, overwrite);
    }
  });
}

template <class T>
void cast_from_float(int64_t n, const float* x, T* y) {
  if constexpr (kIsDouble<T>) {
    for (int64_t i = 0; i < n; ++i) y[i] = x[i];
  } else {
    parallel_elements(n, [=](int64_t begin, int64_t end) {
      for_each_vector<kLanesOf<T>>(end - begin, [=](int64_t i, auto lanes) {
        i += begin;
        store(y + i, load(x + i, lanes), lanes);
      });
    });
  }
}

template <class T>
void cast_to_float(int64_t n, const T* x, float* y) {
  if constexpr (kIsDouble<T>) {
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(x[i]);
  } else {
    parallel_elements(n, [=](int64_t begin, int64_t end) {
      for_each_vector<kLanesOf<T>>(end - begin, [=](int64_t i, auto lanes) {
        i += begin;
        store(y + i, load(x + i, lanes), lanes);
      });
    });
  }
}

#define TRIREME_INSTANCES(T)                                                              \
  template void add(int64_t, const T*, const T*, T*);                                     \
  template void scale(int64_t, double, T*);                                               \
  template void soft_cap(int64_t, int64_t, int64_t, double, T*);                          \
  template void accumulate(int64_t, const T*, float*, bool);                              \
  template void accumulate_all(int64_t, int, const T* const*, DType, DType, void*, bool); \
  template void cast_from_float(int64_t, const float*, T*);                               \
  template void cast_to_float(int64_t, const T*, float*);
TRIREME_INSTANCES(float)
TRIREME_INSTANCES(bfloat16)
TRIREME_INSTANCES(float16)
TRIREME_INSTANCES(double)

}  // namespace trireme::kernels::TRIREME_LEVEL
