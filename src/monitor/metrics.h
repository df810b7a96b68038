// What a run tells about itself: one record a step, one an event; sinks write them. Losing a log line never stops
// training.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace trireme::monitor {

struct StepRecord {
  std::int64_t step = 0, total_steps = 0;
  double epoch = 0;
  double loss = 0, learning_rate = 0;
  double gradient_norm = 0, clipped_gradient_norm = 0;
  bool skipped = false;            // the gradients were not finite: nothing moved
  std::int64_t skipped_steps = 0;  // of the run so far
  double loss_scale = 1;           // that the gradients were computed with; 1: none
  double tokens_per_s = 0;         // of padded samples: those with a label
  double step_seconds = 0, data_wait_seconds = 0;
  std::uint64_t tokens = 0;               // consumed by the run so far, padding too
  std::uint64_t memory_bytes = 0;         // resident set of this process
  std::uint64_t device_memory_bytes = 0;  // in use on its CUDA device, by whomever, a while ago; 0: it has none
  double seconds_left = 0;
  // Where asked for: milliseconds of this rank by kind of work, in order; those of lanes that overlap add up to more
  // than the step.
  std::vector<std::pair<std::string, double>> breakdown_ms;
};

class Sink {
 public:
  virtual ~Sink() = default;
  virtual void step(const StepRecord& record) = 0;
  virtual void event(const nlohmann::json& event) = 0;  // has "event": "start" | "resume" | "eval" | "epoch" | "save" |
                                                        // "stop" | "error" | ...
};

// "step 10/400  loss 3.2145  lr 1.00e-03  grad 2.31 -> 1.00  12.3k tok/s  mem 312 MB  data 0.1 ms  left 1m 32s", with
// "device 40589 MB" before mem where there is one; every log_interval steps and at the last one, on standard output.
// Events are left to whoever causes them.
std::unique_ptr<Sink> make_console(std::int64_t log_interval);
std::string console_line(const StepRecord& record);

// metrics.jsonl: one object a line (step, loss, lr, grad_norm, grad_norm_clipped, tokens_per_s, ...). Opening cuts a
// torn last line and drops step records after resumed_step, so that a restart continues one curve (events stay). Error
// TR3021 when it cannot be opened; a line that cannot be written later is counted, told once, and lost.
std::unique_ptr<Sink> make_jsonl(const std::filesystem::path& file, std::int64_t resumed_step);

// An event file of this attempt in the folder, which `tensorboard --logdir` reads while it is written: train/loss,
// train/learning_rate, train/grad_norm, train/epoch_loss, speed/tokens_per_s, eval/loss, ... as fp32, and the plan as
// text. It tells readers to drop what earlier attempts wrote after resumed_step, so that a restart continues one curve;
// a record that a kill cut short is passed over by them. Error TR3021 as above.
std::unique_ptr<Sink> make_tensorboard(const std::filesystem::path& folder, std::int64_t resumed_step,
                                       std::string_view plan);

std::uint64_t resident_bytes();  // resident set of this process; 0 where the system does not tell

}  // namespace trireme::monitor
