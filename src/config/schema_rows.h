// What the tables of rows share: names of tools, ranges, and when a key decides the numbers.
#pragma once
#include <string_view>
#include <vector>

#include "config/field.h"
#include "config/schema.h"

namespace trireme::config {

inline constexpr std::string_view kAccelerate = "Accelerate", kDeepSpeed = "DeepSpeed", kFsdp = "PyTorch FSDP",
                                  kGuides = "training guides", kHuggingFace = "Hugging Face", kLightning = "Lightning",
                                  kMegatron = "Megatron-LM", kNanoGpt = "nanoGPT", kTitan = "torchtitan";

// Steps times the largest global batch (also 1e9) still count in 64 bits.
inline constexpr double kMaxSteps = 1e9;

inline Range from(double low, double high) {
  return {.low = low, .high = high};
}
inline Range at_least(double low) {
  return {.low = low};
}
inline Range above(double low) {
  return {.low = low, .above_low = true};
}
inline Range share_below_one() {
  return {.low = 0, .high = 1, .below_high = true};
}

inline bool always(const Plan&) {
  return true;
}
bool law_knows_the_end(const Plan& plan);  // of the run: max_steps then decides the rates

// Whether ranks add up their own micro-batches first, so that the order of summation depends on their number. But for
// replicas, all other ways to run give the same bits.
inline bool sums_once_a_step(const Plan& plan) {
  using enum Strategy;
  const Strategy strategy = plan.distributed.strategy;
  const bool whole_gradients = strategy == ddp || strategy == no_shard || strategy == zero1;
  return whole_gradients && !plan.training.reduce_each_micro_batch;
}

inline bool scales_loss(const Plan& plan) {
  return plan.training.mixed_precision == MixedPrecision::fp16;
}

inline void append(std::vector<Key>& rows, const std::vector<Key>& more) {
  rows.insert(rows.end(), more.begin(), more.end());
}

// The tables, in the order of the documentation.
std::vector<Key> model_and_data_keys();    // schema_model.cpp; with the keys at the top
std::vector<Key> training_and_run_keys();  // schema_training.cpp; with those of
std::vector<Key> law_keys();               // schema_law.cpp
std::vector<Key> optimizer_keys();         // schema_optimizer.cpp
std::vector<Key> precision_keys();         // schema_precision.cpp; with
std::vector<Key> loss_scale_keys();
std::vector<Key> offload_keys();  // schema_offload.cpp
std::vector<Key> run_keys();      // schema_run.cpp
std::vector<Key> later_keys();    // schema_later.cpp
std::vector<Key> trainer_keys();  // schema_trainer.cpp
std::vector<Key> foreign_keys();  // schema_foreign.cpp

}  // namespace trireme::config
