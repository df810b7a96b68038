// What a run of the binary needs on disk, and what it left there.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "support/process.h"
#include "train/tiny_run.h"

namespace trireme::testing {

// Writes the plan of `run` as a YAML file in its output_dir's parent and returns the path.
std::filesystem::path write_config(const TinyRun& run);

// trireme launch --nproc-per-node RANKS train CONFIG overrides...
std::vector<std::string> launch_command(int ranks, const std::filesystem::path& config,
                                        const std::vector<std::string>& overrides = {});

struct Records {
  std::vector<double> losses, learning_rates;
  std::vector<std::int64_t> steps;
  std::vector<std::string> events;
};
Records read_metrics(const std::filesystem::path& output_dir);

// Digest of all tensors of the newest checkpoint, comparable with TinyResult::weights_digest.
std::string weights_digest(const std::filesystem::path& output_dir);

// Processes whose environment holds NAME=value. Ended ones that nobody has reaped yet do not count.
std::vector<int> processes_with(const std::string& name_and_value);

}  // namespace trireme::testing
