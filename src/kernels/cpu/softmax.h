// What the two users of softmax (attention, cross-entropy) share.
#pragma once
#include "kernels/cpu/vector.h"

namespace trireme::kernels::TRIREME_LEVEL {
namespace {

template <class S>
struct Softmax {
  S largest, sum;  // the largest input, and the sum of exp(input - largest)
};

template <class T>
TRIREME_INLINE Acc<T> first_of(const T* x) {
  return load(x, SomeLanes{1}).part[0][0];
}

// Of n >= 1 elements. NaN may be passed over: the exponentials that follow carry it.
template <class T>
TRIREME_INLINE Acc<T> largest_of(int64_t n, const T* x) {
  constexpr int kLanes = kLanesOf<T>;
  auto lanes = splat(first_of(x));
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) lanes = larger(load(x + i), lanes);
  Acc<T> largest = max_of_lanes(lanes);
  for (; i < n; ++i) {
    const Acc<T> value = first_of(x + i);
    largest = value > largest ? value : largest;
  }
  return largest;
}

// The sum of a row's vectors: whole ones lane by lane, then the lanes in use of the last.
template <class S>
struct LaneSum {
  Vector<S> whole = {};
  S rest = 0;

  TRIREME_INLINE void add(Vector<S> x, AllLanes) { whole = whole + x; }
  TRIREME_INLINE void add(Vector<S> x, SomeLanes lanes) {
    S lane[Vector<S>::kLanes];
    store(lane, x);
    for (int64_t i = 0; i < lanes.count; ++i) rest += lane[i];
  }
  TRIREME_INLINE S total() const { return sum_of_lanes(whole) + rest; }
};

}  // namespace
}  // namespace trireme::kernels::TRIREME_LEVEL
