// Sums over rows, column by column: weight and bias gradients.
#pragma once
#include "kernels/cpu/vector.h"

namespace trireme::kernels::TRIREME_LEVEL {
namespace {

// The columns of kVectors vectors from c on: rows add up in blocks of 32, so that the rounding error does not grow
// with N. Several vectors at once, because a row's neighbouring cache lines come together.
template <int kVectors, class T, class AddRow, class Lanes>
TRIREME_INLINE void sum_some_columns(int64_t N, T* out, bool add, int64_t c, AddRow add_row, Lanes lanes) {
  constexpr int64_t kRows = 32, kLanes = kLanesOf<T>;
  VectorOf<T> total[kVectors] = {};
  for (int64_t block = 0; block < N; block += kRows) {
    VectorOf<T> part[kVectors] = {};
    for (int64_t n = block; n < smaller_of(block + kRows, N); ++n) {
      for (int i = 0; i < kVectors; ++i) part[i] = add_row(part[i], n, c + i * kLanes, lanes);
    }
    for (int i = 0; i < kVectors; ++i) total[i] = total[i] + part[i];
  }
  for (int i = 0; i < kVectors; ++i) {
    T* place = out + c + i * kLanes;
    if (add) total[i] = total[i] + load(place, lanes);
    store(place, total[i], lanes);
  }
}

// out[C] = the sum of N rows (+ out if add). add_row(sum, n, c, lanes) is sum with row n's columns c, c + 1, ... added.
// A pass over the columns: no scratch, and the same sum for any number of threads.
template <class T, class AddRow>
TRIREME_INLINE void sum_columns(int64_t N, int64_t C, T* out, bool add, AddRow add_row) {
  constexpr int64_t kLanes = kLanesOf<T>;
  parallel_ranges((C + kLanes - 1) / kLanes, N * C, [=](int64_t begin, int64_t end) {
    int64_t c = begin * kLanes;
    const int64_t last = smaller_of(end * kLanes, C);
    for (; c + 4 * kLanes <= last; c += 4 * kLanes) sum_some_columns<4>(N, out, add, c, add_row, AllLanes{});
    for_each_vector<kLanes>(last - c,
                            [=](int64_t i, auto lanes) { sum_some_columns<1>(N, out, add, c + i, add_row, lanes); });
  });
}

}  // namespace
}  // namespace trireme::kernels::TRIREME_LEVEL
