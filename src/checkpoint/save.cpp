#include <charconv>

#include "base/error.h"
#include "base/failpoint.h"
#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/coverage.h"
#include "checkpoint/lineage.h"
#include "checkpoint/safetensors.h"

namespace trireme::checkpoint {
namespace fs = std::filesystem;
namespace {

constexpr const char* kReplacedRemedy = "stop this job; another start of it goes on in the same folder";

std::string data_file_name(int attempt, int rank) {
  return "state-a" + std::to_string(attempt) + "-rank" + std::to_string(rank) + ".safetensors";
}

// 0 for files of another kind.
int attempt_of_data_file(const std::string& name) {
  constexpr std::string_view kPrefix = "state-a";
  int attempt = 0;
  if (name.starts_with(kPrefix)) std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), attempt);
  return attempt;
}

// Takes away a manifest of the step that does not count: a broken one, or one that a later attempt replaced.
void clear_manifest(const fs::path& folder, const Lineage& lineage) {
  const fs::path path = manifest_path(folder);
  if (!fs::exists(fs::symlink_status(path))) return;
  std::optional<Manifest> old;
  try {
    old = parse_manifest(read_file(path), path.string());
  } catch (const Error&) {  // never a checkpoint, so nothing is lost
  }
  if (old && !lineage.replaced_by(old->attempt, old->step)) {
    throw Error(5010, path.string(),
                "step " + std::to_string(old->step) + " was saved already by attempt " + std::to_string(old->attempt),
                "a checkpoint is never overwritten");
  }
  fs::remove(path);
  fsync_directory(folder);  // before any of its data goes
}

// Removes what an unfinished save left. Data of a newer attempt stays: that attempt may be writing it now.
void clear_leftovers(const fs::path& folder, int attempt) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (attempt_of_data_file(entry.path().filename().string()) <= attempt) fs::remove_all(entry.path());
  }
}

// Removes the data file, and the folder if it is empty then, unless the checkpoint was committed.
class UncommittedStep {
 public:
  explicit UncommittedStep(fs::path folder, fs::path data) : folder_(std::move(folder)), data_(std::move(data)) {}
  UncommittedStep(const UncommittedStep&) = delete;
  UncommittedStep& operator=(const UncommittedStep&) = delete;
  ~UncommittedStep() {
    if (committed_) return;
    std::error_code ignored;  // the failure that brought us here is the one to tell
    fs::remove(data_, ignored);
    fs::remove(folder_, ignored);
  }
  void commit() { committed_ = true; }

 private:
  fs::path folder_, data_;
  bool committed_ = false;
};

void describe(Manifest& manifest, std::span<const NamedData> tensors, const std::string& file) {
  manifest.tensors.clear();
  manifest.files.clear();
  for (const NamedData& tensor : tensors) {
    const std::optional<Box> box = matrix_of(tensor.shape);
    TRIREME_CHECK(box.has_value(), tensor.name + ": the shape is too large");
    LogicalState state{.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape};
    if (box->numel() > 0) {
      state.entries.push_back({file, tensor.name, box->row_begin, box->row_end, box->column_begin, box->column_end, 0});
    }
    manifest.tensors.push_back(std::move(state));
  }
}

std::vector<TensorToWrite> to_write(std::span<const NamedData> tensors) {
  std::vector<TensorToWrite> list;
  for (const NamedData& tensor : tensors) {
    list.push_back({tensor.name, {tensor.dtype, tensor.shape, tensor.data}, tensor.read});
  }
  return list;
}

void write(const fs::path& folder, Manifest& manifest, std::span<const NamedData> tensors) {
  const fs::path data = folder / data_file_name(manifest.attempt, 0);
  describe(manifest, tensors, data.filename().string());
  UncommittedStep step(folder, data);
  const WrittenFile written = write_safetensors(data, to_write(tensors),
                                                {{"run_id", manifest.run_id}, {"step", std::to_string(manifest.step)}});
  manifest.files[data.filename().string()] = {written.bytes, written.block_digests};
  fsync_directory(folder);
  failpoint("checkpoint.before_manifest");
  create_file_exclusive(manifest_path(folder), to_json_text(manifest));
  step.commit();
  failpoint("checkpoint.after_manifest");
}

[[noreturn]] void disk_full(const Error& error, const Manifest& manifest, std::span<const NamedData> tensors) {
  std::uint64_t bytes = 0;
  for (const NamedData& tensor : tensors) {
    const std::optional<Box> box = matrix_of(tensor.shape);
    if (box) bytes += static_cast<std::uint64_t>(box->numel() * size_of(tensor.dtype));
  }
  throw Error(5011, error.place(),
              "the checkpoint of step " + std::to_string(manifest.step) + " needs " + std::to_string(bytes) +
                  " bytes: " + error.message(),
              "free space there, lower checkpoint.keep, or choose another output_dir");
}

}  // namespace

fs::path save(const fs::path& checkpoints, Manifest manifest, std::span<const NamedData> tensors) {
  const Lineage lineage(checkpoints);
  if (const auto later = lineage.replaced_by(manifest.attempt, manifest.step)) {
    throw Error(5013, checkpoints.string(),
                "attempt " + std::to_string(manifest.attempt) + " was replaced by attempt " + std::to_string(*later) +
                    " and must not save step " + std::to_string(manifest.step),
                kReplacedRemedy);
  }
  const fs::path folder = checkpoints / step_folder_name(manifest.step);
  try {
    fs::create_directories(folder);
    clear_manifest(folder, lineage);
    clear_leftovers(folder, manifest.attempt);
    fsync_directory(checkpoints);
    write(folder, manifest, tensors);
  } catch (const fs::filesystem_error& error) {
    const bool full = error.code() == std::errc::no_space_on_device;
    const Error failure(full ? 5011 : 5012, folder.string(), std::string("cannot save: ") + error.what());
    if (full) disk_full(failure, manifest, tensors);
    throw failure;
  } catch (const Error& error) {
    if (error.code() == kDiskFull) disk_full(error, manifest, tensors);
    if (error.code() == kWriteFailed) throw Error(5012, error.place(), error.message(), error.remedy());
    throw;
  }
  return folder;
}

}  // namespace trireme::checkpoint
