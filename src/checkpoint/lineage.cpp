#include "checkpoint/lineage.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/signed_json.h"

namespace trireme::checkpoint {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kStepDigits = 8;

// The number in PREFIX + digits + SUFFIX; none for anything else, also for a number written in another way.
std::optional<std::int64_t> numbered(std::string_view name, std::string_view prefix, std::string_view suffix,
                                     std::size_t min_digits) {
  if (name.size() < prefix.size() + suffix.size() || !name.starts_with(prefix) || !name.ends_with(suffix)) return {};
  const std::string_view digits = name.substr(prefix.size(), name.size() - prefix.size() - suffix.size());
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const bool canonical = digits.size() == min_digits || (digits.size() > min_digits && digits.front() != '0');
  if (error != std::errc{} || end != digits.data() + digits.size() || value < 0 || !canonical) return {};
  return value;
}

std::vector<fs::path> children(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  if (error == std::errc::no_such_file_or_directory) return paths;
  if (error) throw Error(kReadFailed, folder.string(), "cannot list the folder: " + error.message());
  for (const fs::directory_entry& entry : entries) paths.push_back(entry.path());
  return paths;
}

fs::path attempt_path(const fs::path& checkpoints, int attempt) {
  return checkpoints / "attempts" / (std::to_string(attempt) + ".json");
}

std::int64_t read_resumed_from(const fs::path& file, std::int64_t attempt) {
  const nlohmann::json record = open_signed(read_file(file), file.string());
  const Fields fields(record, file.string(), "");
  if (fields.count("attempt") != attempt) fields.fail(5034, "attempt is another than the file's name says");
  return fields.count("resumed_from");
}

}  // namespace

Lineage::Lineage(const fs::path& checkpoints, std::vector<std::string>* rejected) {
  for (const fs::path& path : children(checkpoints / "attempts")) {
    const auto attempt = numbered(path.filename().string(), "", ".json", 1);
    if (!attempt || *attempt > std::numeric_limits<int>::max() - 1) continue;
    newest_ = std::max(newest_, static_cast<int>(*attempt));
    try {
      resumed_from_[static_cast<int>(*attempt)] = read_resumed_from(path, *attempt);
    } catch (const Error& error) {
      if (rejected != nullptr) rejected->emplace_back(error.what());
    }
  }
}

std::optional<int> Lineage::replaced_by(int attempt, std::int64_t step) const {
  for (auto later = resumed_from_.upper_bound(attempt); later != resumed_from_.end(); ++later) {
    if (step > later->second) return later->first;
  }
  return std::nullopt;
}

std::string step_folder_name(std::int64_t step) {
  std::string digits = std::to_string(step);
  if (digits.size() < kStepDigits) digits.insert(0, kStepDigits - digits.size(), '0');
  return "step-" + digits;
}

std::vector<StepFolder> step_folders(const fs::path& checkpoints) {
  std::vector<StepFolder> folders;
  for (const fs::path& path : children(checkpoints)) {
    if (const auto step = numbered(path.filename().string(), "step-", "", kStepDigits))
      folders.push_back({*step, path});
  }
  std::sort(folders.begin(), folders.end(), [](const StepFolder& a, const StepFolder& b) { return a.step > b.step; });
  return folders;
}

fs::path manifest_path(const fs::path& step_folder) {
  return step_folder / "manifest.json";
}

int begin_attempt(const fs::path& checkpoints, const std::string& run_id, std::int64_t resumed_from) {
  const fs::path folder = checkpoints / "attempts";
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw Error(5012, folder.string(), "cannot create the folder: " + error.message());
  fsync_directory(checkpoints);

  // Above all that left a trace here, also where step folders were copied without the records of their attempts.
  int attempt = Lineage(checkpoints).newest();
  for (const StepFolder& step : step_folders(checkpoints)) {
    try {
      const Manifest manifest = parse_manifest(read_file(manifest_path(step.path)), manifest_path(step.path).string());
      attempt = std::max(attempt, std::min(manifest.attempt, std::numeric_limits<int>::max() - 1));
    } catch (const Error&) {  // no manifest, or a broken one: no checkpoint, no attempt to stay above
    }
  }
  for (;;) {
    ++attempt;
    const nlohmann::ordered_json record = {
        {"format_version", kFormatVersion}, {"attempt", attempt}, {"run_id", run_id}, {"resumed_from", resumed_from}};
    try {
      create_file_exclusive(attempt_path(checkpoints, attempt), sign(record));
      return attempt;
    } catch (const Error& failure) {
      if (failure.code() != 5010) throw;  // another start was faster: the next number
    }
  }
}

}  // namespace trireme::checkpoint
