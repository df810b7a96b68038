#include "cli/run_files.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/hash.h"
#include "checkpoint/checkpoint.h"

namespace trireme::testing {

namespace fs = std::filesystem;

fs::path write_config(const TinyRun& run) {
  fs::path path = run.output_dir.parent_path() / "tiny.yaml";
  std::ofstream(path) << config::to_yaml(tiny_plan(run));
  return path;
}

std::vector<std::string> launch_command(int ranks, const fs::path& config, const std::vector<std::string>& overrides) {
  std::vector<std::string> command{TRIREME_BINARY,        "launch", "--nproc-per-node",
                                   std::to_string(ranks), "train",  config.string()};
  command.insert(command.end(), overrides.begin(), overrides.end());
  return command;
}

Records read_metrics(const fs::path& output_dir) {
  Records records;
  std::ifstream file(output_dir / "metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    const auto record = nlohmann::json::parse(line);
    if (record.contains("event")) {
      records.events.push_back(record["event"]);
    } else {
      records.steps.push_back(record["step"]);
      records.losses.push_back(record["loss"]);
      records.learning_rates.push_back(record["lr"]);
    }
  }
  return records;
}

std::string weights_digest(const fs::path& output_dir) {
  const auto candidates = checkpoint::list(output_dir / "checkpoints");
  if (candidates.empty()) return "no checkpoint";
  const checkpoint::Reader reader(candidates.front().folder);
  std::vector<checkpoint::LogicalState> tensors = reader.manifest().tensors;
  // As the tests of threads do: weights, first moments, second moments, each by name.
  const auto key = [](const checkpoint::LogicalState& tensor) {
    const std::string& name = tensor.name;
    return std::pair(name.starts_with("exp_avg_sq/") ? 2 : name.starts_with("exp_avg/") ? 1 : 0, name);
  };
  std::sort(tensors.begin(), tensors.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
  Digest digest;
  for (const auto& tensor : tensors) {
    const std::int64_t rows = tensor.shape.size() == 2 ? tensor.shape[0] : 1;
    const std::int64_t columns = tensor.shape.back();
    std::vector<float> data(static_cast<std::size_t>(rows * columns));
    reader.read(tensor.name, tensor.shape, 0, rows, 0, columns, data.data(), columns);
    digest.add(std::as_bytes(std::span(data)));
  }
  return digest.hex();
}

std::vector<int> processes_with(const std::string& name_and_value) {
  std::vector<int> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "environ", std::ios::binary);  // empty for a zombie
    std::ostringstream text;
    text << file.rdbuf();
    if ((std::string(1, '\0') + text.str()).find(std::string(1, '\0') + name_and_value + std::string(1, '\0')) !=
        std::string::npos) {
      found.push_back(std::stoi(name));
    }
  }
  return found;
}

}  // namespace trireme::testing
