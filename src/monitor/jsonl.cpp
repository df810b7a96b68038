#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "monitor/log_file.h"
#include "monitor/lossy_writer.h"
#include "monitor/metrics.h"

namespace trireme::monitor {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

std::string line_of(const json& record) {
  // Infinite and NaN become null: still JSON, and whoever plots sees the gap.
  return record.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

// Whether a line of the file belongs to the curve that goes on after resumed_step: it does unless it is a step record
// of a later step, or no record at all.
bool keeps(std::string_view line, std::int64_t resumed_step) {
  const json record = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!record.is_object()) return false;
  if (record.contains("event")) return true;
  const auto step = record.find("step");
  return step != record.end() && step->is_number_integer() && step->get<std::int64_t>() <= resumed_step;
}

// The file's text as it should be before the run goes on; none if it is that already.
std::optional<std::string> repaired(std::string_view text, std::int64_t resumed_step) {
  std::string kept;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t end = rest.find('\n');
    if (end == std::string_view::npos) break;  // torn by a kill
    const std::string_view line = rest.substr(0, end);
    if (keeps(line, resumed_step)) kept.append(line).push_back('\n');
    rest.remove_prefix(end + 1);
  }
  if (kept == text) return std::nullopt;
  return kept;
}

class JsonLines : public Sink {
 public:
  explicit JsonLines(const fs::path& path) : file_(path), out_(file_.descriptor(), path.string()) {}

  void step(const StepRecord& record) override {
    json line{{"step", record.step},
              {"total_steps", record.total_steps},
              {"epoch", record.epoch},
              {"loss", record.loss},
              {"lr", record.learning_rate},
              {"grad_norm", record.gradient_norm},
              {"grad_norm_clipped", record.clipped_gradient_norm},
              {"skipped", record.skipped},
              {"skipped_steps", record.skipped_steps},
              {"loss_scale", record.loss_scale},
              {"tokens_per_s", record.tokens_per_s},
              {"step_seconds", record.step_seconds},
              {"data_wait_seconds", record.data_wait_seconds},
              {"tokens", record.tokens},
              {"memory_bytes", record.memory_bytes},
              {"seconds_left", record.seconds_left}};
    if (record.device_memory_bytes > 0) line["device_memory_bytes"] = record.device_memory_bytes;
    for (const auto& [kind, ms] : record.breakdown_ms) line["breakdown_ms"][kind] = ms;
    out_.write(line_of(line));
  }

  void event(const json& event) override {
    TRIREME_CHECK(event.is_object() && event.contains("event"), "an event is an object with \"event\"");
    out_.write(line_of(event));
  }

 private:
  LogFile file_;
  LossyWriter out_;  // behind file_: it goes first
};

}  // namespace

std::unique_ptr<Sink> make_jsonl(const fs::path& file, std::int64_t resumed_step) {
  if (fs::is_regular_file(file)) {
    if (const auto text = repaired(read_file(file), resumed_step)) write_file_atomic(file, *text);
  }
  return std::make_unique<JsonLines>(file);
}

}  // namespace trireme::monitor
