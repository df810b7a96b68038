// Which attempt wrote what, and whether it still counts. An attempt that resumed from step s replaces whatever earlier
// attempts wrote beyond s.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace trireme::checkpoint {

class Lineage {
 public:
  // Reads CHECKPOINTS/attempts. A record that cannot be read goes to rejected and replaces nothing: what it would have
  // replaced is still a valid state of the same run.
  explicit Lineage(const std::filesystem::path& checkpoints, std::vector<std::string>* rejected = nullptr);

  // The attempt that replaced what `attempt` wrote at `step`, or none.
  std::optional<int> replaced_by(int attempt, std::int64_t step) const;
  int newest() const { return newest_; }  // 0: no attempt yet; unreadable records count

 private:
  std::map<int, std::int64_t> resumed_from_;
  int newest_ = 0;
};

std::string step_folder_name(std::int64_t step);  // "step-00000010"

struct StepFolder {
  std::int64_t step = 0;
  std::filesystem::path path;
};
// All folders with such a name, whatever is in them, in numeric order, newest first.
std::vector<StepFolder> step_folders(const std::filesystem::path& checkpoints);

std::filesystem::path manifest_path(const std::filesystem::path& step_folder);

}  // namespace trireme::checkpoint
