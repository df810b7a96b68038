// The mean loss of each epoch, over its steps. A step belongs to the epoch of its first sample.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>

namespace trireme::monitor {

struct EpochReport {
  std::int64_t epoch = 0;  // from 1
  double mean_loss = 0;    // over the steps whose losses are known; NaN where none is
  std::int64_t steps = 0;  // how many those are
};

class EpochLoss {
 public:
  EpochLoss(std::uint64_t num_samples, std::uint64_t samples_per_step)
      : num_samples_(num_samples), samples_per_step_(samples_per_step) {}

  // The steps up to and with resumed_step that an earlier attempt left in metrics.jsonl, so that an epoch that was
  // begun then has its whole mean. A file that is not there, or not ours, adds nothing.
  void restore(const std::filesystem::path& metrics, std::int64_t resumed_step);

  // In the order of the steps. A report where no further step of this size belongs to the step's epoch; last: of the
  // run, whose rest of an epoch would not fill another step.
  // No loss: a step that was skipped.
  std::optional<EpochReport> add(std::int64_t step, std::optional<double> loss, bool last);

 private:
  std::uint64_t epoch_of(std::int64_t step) const {
    return static_cast<std::uint64_t>(step - 1) * samples_per_step_ / num_samples_;
  }

  std::uint64_t num_samples_, samples_per_step_;
  std::uint64_t epoch_ = 0;
  double sum_ = 0;
  std::int64_t steps_ = 0;
};

}  // namespace trireme::monitor
