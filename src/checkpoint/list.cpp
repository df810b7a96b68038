#include "base/error.h"
#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/lineage.h"

namespace trireme::checkpoint {
namespace fs = std::filesystem;
namespace {

enum class Standing { valid, replaced, unfinished, broken };

struct Judged {
  StepFolder folder;
  Standing standing = Standing::unfinished;
  std::string reason;
};

Judged judge(const StepFolder& folder, const Lineage& lineage) {
  const fs::path path = manifest_path(folder.path);
  if (!fs::exists(fs::symlink_status(path))) return {folder, Standing::unfinished, ""};
  try {
    const Manifest manifest = parse_manifest(read_file(path), path.string());
    if (manifest.step != folder.step) {
      return {folder, Standing::broken, path.string() + ": is of step " + std::to_string(manifest.step)};
    }
    if (const auto later = lineage.replaced_by(manifest.attempt, manifest.step)) {
      return {folder, Standing::replaced,
              path.string() + ": attempt " + std::to_string(manifest.attempt) + " was replaced by attempt " +
                  std::to_string(*later)};
    }
    return {folder, Standing::valid, ""};
  } catch (const Error& error) {
    return {folder, Standing::broken, error.what()};
  }
}

std::vector<Judged> judge_all(const fs::path& checkpoints, std::vector<std::string>* rejected) {
  const Lineage lineage(checkpoints, rejected);
  std::vector<Judged> all;
  for (const StepFolder& folder : step_folders(checkpoints)) all.push_back(judge(folder, lineage));
  return all;
}

// The manifest first: a removal that is cut short leaves no checkpoint rather than half of one.
void remove_step(const StepFolder& folder) {
  try {
    fs::remove(manifest_path(folder.path));
    fsync_directory(folder.path);
    fs::remove_all(folder.path);
  } catch (const fs::filesystem_error& error) {
    throw Error(5012, folder.path.string(), std::string("cannot remove: ") + error.what());
  }
}

}  // namespace

std::vector<Candidate> list(const fs::path& checkpoints, std::vector<std::string>* rejected) {
  std::vector<Candidate> candidates;
  for (const Judged& judged : judge_all(checkpoints, rejected)) {
    if (judged.standing == Standing::valid) candidates.push_back({judged.folder.step, judged.folder.path});
    if (rejected != nullptr && !judged.reason.empty()) rejected->push_back(judged.reason);
  }
  return candidates;
}

void retain(const fs::path& checkpoints, int keep, std::optional<std::int64_t> resumed_from) {
  if (keep < 1) return;
  int kept = 0;
  for (const Judged& judged : judge_all(checkpoints, nullptr)) {  // newest first
    const bool in_line = judged.standing == Standing::valid;
    if (in_line && kept < keep) {
      ++kept;
    } else if (kept == keep && judged.standing != Standing::broken && judged.folder.step != resumed_from) {
      remove_step(judged.folder);
    }
  }
}

}  // namespace trireme::checkpoint
