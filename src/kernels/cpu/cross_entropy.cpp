#include "kernels/cpu/softmax.h"
#include "kernels/level.h"

namespace trireme::kernels::TRIREME_LEVEL {
namespace {

template <class T>
TRIREME_INLINE Softmax<Acc<T>> softmax_of(int64_t V, const T* logits) {
  const Acc<T> largest = largest_of(V, logits);
  const auto shift = splat(largest);
  LaneSum<Acc<T>> sum;
  for_each_vector<kLanesOf<T>>(
      V, [&](int64_t v, auto lanes) { sum.add(exponential(load(logits + v, lanes) - shift), lanes); });
  return {largest, sum.total()};
}

template <class T>
TRIREME_INLINE double loss_of(const Softmax<Acc<T>>& softmax, const T* label) {
  const Acc<T> logit = first_of(label);
  return ::log(static_cast<double>(softmax.sum)) + (static_cast<double>(softmax.largest) - logit);
}

// d(capped) / d(uncapped), from capped = cap * tanh(uncapped / cap).
template <class S>
TRIREME_INLINE Vector<S> slope_of_cap(Vector<S> capped, Vector<S> inverse_cap) {
  const auto tangent = capped * inverse_cap, one = splat(S{1});
  return one - tangent * tangent;
}

template <bool kCapped, class T>
TRIREME_INLINE void write_gradient(int64_t V, int64_t stride, T* logits, const Softmax<Acc<T>>& softmax, int64_t label,
                                   Acc<T> scale, Acc<T> inverse_cap) {
  const auto logit = splat(first_of(logits + label));
  const auto top = splat(softmax.largest);
  const auto factor = splat(scale / softmax.sum);
  const auto inverse = splat(inverse_cap);
  for_each_vector<kLanesOf<T>>(V, [=](int64_t v, auto lanes) {
    const auto value = load(logits + v, lanes);
    auto gradient = exponential(value - top) * factor;
    if constexpr (kCapped) gradient = gradient * slope_of_cap(value, inverse);
    store(logits + v, gradient, lanes);
  });
  auto right = (exponential(logit - top) / splat(softmax.sum) - splat(Acc<T>{1})) * splat(scale);
  if constexpr (kCapped) right = right * slope_of_cap(logit, inverse);
  store(logits + label, right, SomeLanes{1});
  memset(static_cast<void*>(logits + V), 0, (stride - V) * sizeof(T));
}

// Sums row_loss(n) over the rows, in row order whatever the threads do.
template <class RowLoss>
TRIREME_INLINE double sum_of_losses(int64_t N, int64_t stride, RowLoss row_loss) {
  constexpr int64_t kRows = 256;
  double total = 0;
  for (int64_t block = 0; block < N; block += kRows) {
    double losses[kRows];
    const int64_t rows = smaller_of(kRows, N - block);
    parallel_ranges(rows, rows * stride, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) losses[n] = row_loss(block + n);
    });
    for (int64_t n = 0; n < rows; ++n) total += losses[n];
  }
  return total;
}

}  // namespace

template <class T>
void cross_entropy(int64_t N, int64_t V, int64_t stride, double soft_cap, T* logits, const int32_t* labels,
                   double grad_scale, double* total) {
  *total += sum_of_losses(N, stride, [=](int64_t n) {
    T* row = logits + n * stride;
    if (labels[n] < 0) {
      memset(static_cast<void*>(row), 0, stride * sizeof(T));
      return 0.0;
    }
    const Softmax<Acc<T>> softmax = softmax_of(V, row);
    const double loss = loss_of(softmax, row + labels[n]);
    const auto scale = static_cast<Acc<T>>(grad_scale);
    if (soft_cap > 0) {
      write_gradient<true>(V, stride, row, softmax, labels[n], scale, static_cast<Acc<T>>(1 / soft_cap));
    } else {
      write_gradient<false>(V, stride, row, softmax, labels[n], scale, Acc<T>{0});
    }
    return loss;
  });
}

template <class T>
void cross_entropy_loss(int64_t N, int64_t V, int64_t stride, const T* logits, const int32_t* labels, double* total) {
  *total += sum_of_losses(N, stride, [=](int64_t n) {
    const T* row = logits + n * stride;
    return labels[n] < 0 ? 0.0 : loss_of(softmax_of(V, row), row + labels[n]);
  });
}

#define TRIREME_INSTANCES(T)                                                                           \
  template void cross_entropy(int64_t, int64_t, int64_t, double, T*, const int32_t*, double, double*); \
  template void cross_entropy_loss(int64_t, int64_t, int64_t, const T*, const int32_t*, double*);
TRIREME_INSTANCES(float)
TRIREME_INSTANCES(bfloat16)
TRIREME_INSTANCES(float16)
TRIREME_INSTANCES(double)

}  // namespace trireme::kernels::TRIREME_LEVEL
