#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "monitor/lossy_writer.h"
#include "monitor/metrics.h"

namespace trireme::monitor {
namespace {

// "950", "12.3k", "4.56M": three digits.
std::string short_count(double value) {
  for (const char* unit : {"", "k", "M", "G"}) {
    if (value < 999.5) return fmt::format("{:.{}f}{}", value, *unit == 0 || value >= 99.95 ? 0 : 1, unit);
    value /= 1000;
  }
  return fmt::format("{:.0f}T", value);
}

std::string duration(double seconds) {
  if (!(seconds >= 0) || seconds > 1e9) return "?";
  const auto whole = static_cast<long long>(std::llround(seconds));
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m {:02}s", whole / 60, whole % 60);
  return fmt::format("{}h {:02}m", whole / 3600, whole / 60 % 60);
}

class Console : public Sink {
 public:
  explicit Console(std::int64_t log_interval) : interval_(log_interval), out_(STDOUT_FILENO, "standard output") {
    TRIREME_CHECK(log_interval >= 1, "the log interval is at least one step");
  }

  void step(const StepRecord& record) override {
    if (record.step % interval_ != 0 && record.step != record.total_steps) return;
    out_.write(console_line(record) + "\n");
    if (record.breakdown_ms.empty()) return;
    std::string line = " ";
    for (const auto& [kind, ms] : record.breakdown_ms) line += fmt::format(" {} {:.1f} ms ", kind, ms);
    out_.write(line + "\n");
  }

  void event(const nlohmann::json&) override {}  // whoever causes an event tells it in words; the file keeps it

 private:
  std::int64_t interval_;
  LossyWriter out_;
};

}  // namespace

std::string console_line(const StepRecord& record) {
  const std::uint64_t on_device = record.device_memory_bytes;
  return fmt::format(
      "step {}/{}  loss {:.4f}  lr {:.2e}  grad {:.2f} -> {:.2f}  {} tok/s  {}mem {:.0f} MB  data {:.1f} ms  left {}",
      record.step, record.total_steps, record.loss, record.learning_rate, record.gradient_norm,
      record.clipped_gradient_norm, short_count(record.tokens_per_s),
      on_device == 0 ? "" : fmt::format("device {:.0f} MB  ", static_cast<double>(on_device) / 1e6),
      static_cast<double>(record.memory_bytes) / 1e6, record.data_wait_seconds * 1e3, duration(record.seconds_left));
}

std::unique_ptr<Sink> make_console(std::int64_t log_interval) {
  return std::make_unique<Console>(log_interval);
}

}  // namespace trireme::monitor
