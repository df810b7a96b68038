// DeepSpeed's JSON, by the keys of its releases up to 0.19.6 (deepspeed/runtime/config.py and the sections' own files).
#include "config/dialects.h"

namespace trireme::config {
namespace {

constexpr auto kSets = Fate::sets;

std::vector<ForeignKey> deepspeed_keys() {
  return {
      {"train_batch_size", kSets, "training.global_batch_size"},
      {"train_micro_batch_size_per_gpu", kSets, "training.micro_batch_size"},
      {"gradient_accumulation_steps", kSets, "training.gradient_accumulation_steps"},
      {"gradient_clipping", kSets, "training.gradient_clipping"},
      {"steps_per_print", kSets, "monitor.log_interval"},
      {"wall_clock_breakdown", kSets, "monitor.wall_clock_breakdown"},
      {.name = "zero_optimization.stage",
       .key = "distributed.strategy",
       .values = {{"0", "ddp"}, {"1", "zero1"}, {"2", "zero2"}, {"3", "zero3"}}},
  };
}

}  // namespace

const Dialect& deepspeed_dialect() {
  static const Dialect dialect{
      .tool = "DeepSpeed", .keys = deepspeed_keys(), .rules = {}, .underscore_is_comment = true};
  return dialect;
}

}  // namespace trireme::config
