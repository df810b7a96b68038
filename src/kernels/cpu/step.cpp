// Small things of a step that are the same in every type.
#include "kernels/cpu/vector.h"
#include "kernels/level.h"

namespace trireme::kernels::TRIREME_LEVEL {

void set_update(int count, const ExactSum* squares, double loss_scale, double max_norm, Update* update) {
  ExactSum sum;
  for (int i = 0; i < count; ++i) sum.add(squares[i]);
  *update = update_of(sum.value(), loss_scale, max_norm);
}

void first_in_window(int64_t B, int64_t T, int64_t window, const int32_t* starts, const int32_t* past, int32_t* out) {
  for (int64_t n = 0; n < B * T; ++n) {
    const int64_t first = (past == nullptr ? 0 : past[n / T]) + n % T - window + 1;
    out[n] = first > starts[n] ? static_cast<int32_t>(first) : starts[n];
  }
}

}  // namespace trireme::kernels::TRIREME_LEVEL
