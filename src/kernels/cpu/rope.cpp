#include "kernels/cpu/vector.h"
#include "kernels/level.h"

namespace trireme::kernels::TRIREME_LEVEL {
namespace {

TRIREME_INLINE Vector<float> angles(const float* p, AllLanes, float) {
  return load(p);
}
TRIREME_INLINE Vector<float> angles(const float* p, SomeLanes lanes, float) {
  return load(p, lanes);
}
TRIREME_INLINE Vector<double> angles(const float* p, AllLanes, double) {
  return load_double(p);
}
TRIREME_INLINE Vector<double> angles(const float* p, SomeLanes lanes, double) {
  float buffer[Vector<double>::kLanes] = {};
  memcpy(buffer, p, lanes.count * sizeof(float));
  return load_double(buffer);
}

}  // namespace

template <class T>
void rope(int64_t N, int64_t heads, int64_t D, int64_t row_stride, T* x, const int32_t* positions, const float* cos_sin,
          int sign) {
  const int64_t half = D / 2;
  const auto direction = splat(static_cast<Acc<T>>(sign));
  parallel_ranges(N, N * heads * D, [=](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const float* cosines = cos_sin + positions[n] * D;
      for (int64_t h = 0; h < heads; ++h) {
        T* head = x + n * row_stride + h * D;
        for_each_vector<kLanesOf<T>>(half, [=](int64_t i, auto lanes) {
          const auto cosine = angles(cosines + i, lanes, Acc<T>{});
          const auto sine = angles(cosines + half + i, lanes, Acc<T>{}) * direction;
          const auto a = load(head + i, lanes);
          const auto b = load(head + half + i, lanes);
          store(head + i, a * cosine - b * sine, lanes);
          store(head + half + i, b * cosine + a * sine, lanes);
        });
      }
    }
  });
}

#define TRIREME_INSTANCES(T) \
  template void rope(int64_t, int64_t, int64_t, int64_t, T*, const int32_t*, const float*, int);
TRIREME_INSTANCES(float)
TRIREME_INSTANCES(bfloat16)
TRIREME_INSTANCES(float16)
TRIREME_INSTANCES(double)

}  // namespace trireme::kernels::TRIREME_LEVEL
