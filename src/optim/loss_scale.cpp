#include "optim/loss_scale.h"

#include <algorithm>
#include <cmath>

namespace trireme::optim {

LossScaleState initial_loss_scale(const LossScaleOptions& options) {
  if (options.fixed > 0) return {.scale = options.fixed};
  return {.scale = std::ldexp(1.0, options.initial_power), .hysteresis = options.hysteresis};
}

std::optional<LossScaleState> next_loss_scale(const LossScaleOptions& options, const LossScaleState& state,
                                              bool overflow) {
  if (options.fixed > 0) return state;
  LossScaleState next = state;
  if (overflow) {
    next.good_steps = 0;
    if (state.hysteresis > 1) {
      --next.hysteresis;
      return next;
    }
    if (state.scale <= options.minimum) return std::nullopt;
    next.scale = std::max(state.scale / 2, options.minimum);
    return next;
  }
  // The step that an overflow is followed by opens the window and is not counted in it.
  const bool grows = state.good_steps > 0 && state.good_steps % options.window == 0;
  if (grows) next.scale *= 2;
  if (grows || options.consecutive_hysteresis) next.hysteresis = options.hysteresis;
  ++next.good_steps;
  return next;
}

}  // namespace trireme::optim
