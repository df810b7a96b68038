#include "monitor/epoch_loss.h"

#include <nlohmann/json.hpp>

#include <sstream>

#include "base/file.h"

namespace trireme::monitor {

void EpochLoss::restore(const std::filesystem::path& metrics, std::int64_t resumed_step) {
  std::error_code ignored;
  if (resumed_step < 1 || !std::filesystem::is_regular_file(metrics, ignored)) return;
  std::istringstream lines(read_file(metrics));
  for (std::string line; std::getline(lines, line);) {
    const auto record = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!record.is_object() || record.contains("event")) continue;
    const auto step = record.find("step"), loss = record.find("loss");
    if (step == record.end() || !step->is_number_integer() || loss == record.end() || !loss->is_number()) continue;
    if (record.value("skipped", nlohmann::json()) == true) continue;
    const auto number = step->get<std::int64_t>();
    // Of the epoch that goes on, and of no other.
    if (number >= 1 && number <= resumed_step && epoch_of(number) == epoch_of(resumed_step + 1)) {
      add(number, loss->get<double>(), false);
    }
  }
}

std::optional<EpochReport> EpochLoss::add(std::int64_t step, std::optional<double> loss, bool last) {
  if (epoch_of(step) != epoch_) {
    epoch_ = epoch_of(step);
    sum_ = 0;
    steps_ = 0;
  }
  if (loss) {
    sum_ += *loss;
    ++steps_;
  }
  const std::uint64_t taken = static_cast<std::uint64_t>(step) * samples_per_step_;
  const bool rest_fills_a_step = (epoch_ + 1) * num_samples_ >= taken + samples_per_step_;
  if (epoch_of(step + 1) == epoch_ && !(last && !rest_fills_a_step)) return std::nullopt;
  return EpochReport{static_cast<std::int64_t>(epoch_) + 1, sum_ / static_cast<double>(steps_), steps_};
}

}  // namespace trireme::monitor
