// What a run of the tests has written.
#pragma once
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace trireme::testing {

// All tensors of the newest checkpoint under output_dir, whole, by name.
std::map<std::string, std::vector<float>> saved_tensors(const std::filesystem::path& output_dir);

// Of metrics.jsonl: the events of that name, or with "" the steps.
std::vector<nlohmann::json> records_of(const std::filesystem::path& output_dir, const std::string& event);
std::vector<double> evaluation_losses(const std::filesystem::path& output_dir);

}  // namespace trireme::testing
