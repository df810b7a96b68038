#include "train/run_output.h"

#include <fstream>

#include "checkpoint/checkpoint.h"

namespace trireme::testing {

std::map<std::string, std::vector<float>> saved_tensors(const std::filesystem::path& output_dir) {
  const checkpoint::Reader reader(checkpoint::list(output_dir / "checkpoints").front().folder);
  std::map<std::string, std::vector<float>> tensors;
  for (const auto& tensor : reader.manifest().tensors) {
    const std::int64_t rows = tensor.shape.size() == 1 ? 1 : tensor.shape[0], columns = tensor.shape.back();
    std::vector<float>& values = tensors[tensor.name];
    values.resize(static_cast<std::size_t>(rows * columns));
    reader.read(tensor.name, tensor.shape, 0, rows, 0, columns, values.data(), columns);
  }
  return tensors;
}

std::vector<nlohmann::json> records_of(const std::filesystem::path& output_dir, const std::string& event) {
  std::ifstream file(output_dir / "metrics.jsonl");
  std::vector<nlohmann::json> records;
  for (std::string line; std::getline(file, line);) {
    auto record = nlohmann::json::parse(line);
    if (record.value("event", "") == event) records.push_back(std::move(record));
  }
  return records;
}

std::vector<double> evaluation_losses(const std::filesystem::path& output_dir) {
  std::vector<double> losses;
  for (const auto& record : records_of(output_dir, "eval")) losses.push_back(record.at("loss").get<double>());
  return losses;
}

}  // namespace trireme::testing
