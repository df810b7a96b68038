#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "monitor/event_file.h"
#include "monitor/log_file.h"
#include "monitor/lossy_writer.h"
#include "monitor/metrics.h"

namespace trireme::monitor {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kFilePrefix = "events.out.tfevents.";

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// The ten digits behind the prefix; 0 for other files.
std::int64_t seconds_of(const std::string& name) {
  constexpr std::size_t kDigits = 10;
  if (!name.starts_with(kFilePrefix) || name.size() < kFilePrefix.size() + kDigits) return 0;
  const char* begin = name.data() + kFilePrefix.size();
  std::int64_t seconds = 0;
  const auto [end, error] = std::from_chars(begin, begin + kDigits, seconds);
  return error == std::errc() && end == begin + kDigits ? seconds : 0;
}

// Readers take the files of a folder in the order of their names and never go back, so the name of a new one must come
// last, also where the clock of this machine is behind that of the one before.
fs::path new_file(const fs::path& folder) {
  constexpr std::int64_t kLargest = 9'999'999'999;
  auto seconds = static_cast<std::int64_t>(now());
  try {
    fs::create_directories(folder);
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      const std::int64_t other = seconds_of(entry.path().filename().string());
      if (other < kLargest) seconds = std::max(seconds, other + 1);
    }
  } catch (const fs::filesystem_error& error) {
    throw Error(3021, folder.string(), "cannot open: " + error.code().message(),
                "check that the folder can be written, or choose another output_dir");
  }
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '-';
  return folder / fmt::format("{}{:010}.{}.{}", kFilePrefix, seconds, host.data(), ::getpid());
}

// Markdown that shows the text as it stands.
std::string as_code(std::string_view text) {
  std::string block = "    ";
  for (const char c : text) {
    block += c;
    if (c == '\n') block += "    ";
  }
  return block;
}

class TensorBoard : public Sink {
 public:
  TensorBoard(const fs::path& path, std::int64_t resumed_step, std::string_view plan)
      : file_(path, IfThere::refuse), out_(file_.descriptor(), path.string(), /*torn_end=*/"") {
    write(version_event(now()));
    write(start_event(now(), resumed_step + 1));
    write(text_event(now(), resumed_step, "plan/text_summary", as_code(plan)));
  }

  void step(const StepRecord& record) override {
    std::vector<Scalar> scalars = {{"train/loss", record.loss},
                                   {"train/learning_rate", record.learning_rate},
                                   {"train/grad_norm", record.gradient_norm},
                                   {"train/grad_norm_clipped", record.clipped_gradient_norm},
                                   {"train/loss_scale", record.loss_scale},
                                   {"train/epoch", record.epoch},
                                   {"speed/tokens_per_s", record.tokens_per_s},
                                   {"speed/step_seconds", record.step_seconds},
                                   {"speed/data_wait_seconds", record.data_wait_seconds},
                                   {"system/memory_bytes", static_cast<double>(record.memory_bytes)}};
    if (record.device_memory_bytes > 0) {
      scalars.push_back({"system/device_memory_bytes", static_cast<double>(record.device_memory_bytes)});
    }
    write(scalars_event(now(), record.step, scalars));
  }

  void event(const nlohmann::json& event) override {
    const std::string name = event.value("event", "");
    std::vector<Scalar> scalars;
    const auto take = [&](const char* key, const char* tag) {
      if (event.contains(key)) scalars.push_back({tag, event[key].get<double>()});
    };
    if (name == "eval") {
      take("loss", "eval/loss");
      take("bits_per_byte", "eval/bits_per_byte");
    } else if (name == "epoch") {
      take("loss", "train/epoch_loss");
    }
    if (!scalars.empty()) write(scalars_event(now(), event.at("step").get<std::int64_t>(), scalars));
  }

 private:
  void write(const std::string& record) { out_.write(framed(record)); }

  LogFile file_;
  LossyWriter out_;  // behind file_: it goes first
};

}  // namespace

std::unique_ptr<Sink> make_tensorboard(const fs::path& folder, std::int64_t resumed_step, std::string_view plan) {
  return std::make_unique<TensorBoard>(new_file(folder), resumed_step, plan);
}

}  // namespace trireme::monitor
