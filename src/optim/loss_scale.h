// The factor that keeps small fp16 gradients above zero: fixed, or found by trying, with the rules of DeepSpeed's
// DynamicLossScaler (microsoft/DeepSpeed, deepspeed/runtime/fp16/loss_scaler.py). Pure: a state and what follows it.
#pragma once
#include <cstdint>
#include <optional>

namespace trireme::optim {

struct LossScaleOptions {
  double fixed = 0;                     // this scale always; 0: a dynamic one, by the fields below
  int initial_power = 16;               // it begins with 2 to this power
  std::int64_t window = 1000;           // it doubles where so many more good steps than one have followed an overflow
  int hysteresis = 2;                   // it halves at this overflow, and from then on at each, until it doubles again
  bool consecutive_hysteresis = false;  // ... until the next good step
  double minimum = 1;                   // it never falls below; above 0
};

struct LossScaleState {
  double scale = 1;
  std::int64_t good_steps = 0;  // since the last overflow, or since the start
  int hysteresis = 1;           // overflows left to the one that halves; at least 1
  bool operator==(const LossScaleState&) const = default;
};

LossScaleState initial_loss_scale(const LossScaleOptions& options);

// After a step whose backward used state.scale. overflow: its gradients were not finite. None where the scale should
// fall and is at its minimum already.
std::optional<LossScaleState> next_loss_scale(const LossScaleOptions& options, const LossScaleState& state,
                                              bool overflow);

}  // namespace trireme::optim
