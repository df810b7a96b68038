// Files that survive a crash: whole or absent, never half.
//
// Every function throws Error with place = path and errno's words, and one of the codes below; a full disk names the
// bytes needed.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace trireme {

inline constexpr int kReadFailed = 3010;   // cannot open, read or map
inline constexpr int kWriteFailed = 3011;  // cannot create, write, rename or fsync
inline constexpr int kDiskFull = 3012;     // no space or quota left

// Regular files and pipes; anything else (a folder, a device) is refused.
std::string read_file(const std::filesystem::path& path);

// Writes path.tmp-PID-N, fsyncs it, renames it over path, fsyncs the folder. On failure nothing of it remains.
void write_file_atomic(const std::filesystem::path& path, std::string_view bytes);

// The same but by link(2): fails with Error TR5010 if path exists already. The commit record of checkpoints.
void create_file_exclusive(const std::filesystem::path& path, std::string_view bytes);

// Where what was measured on this machine is kept: trireme below $XDG_CACHE_HOME or ~/.cache. Empty where there is
// neither; it need not exist.
std::filesystem::path cache_folder();

void fsync_file(const std::filesystem::path& path);
void fsync_directory(const std::filesystem::path& path);

// A file written front to back; unlinked by the destructor unless finish() was called.
class FileWriter {
 public:
  explicit FileWriter(std::filesystem::path path);  // created, must not exist
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  FileWriter(FileWriter&&) noexcept;
  ~FileWriter();
  void write(std::span<const std::byte> bytes);
  std::uint64_t size() const { return size_; }
  void finish();  // flush, fsync, close

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  std::uint64_t size_ = 0;
  std::string buffer_;
  void flush();
};

// A read-only map of a whole regular file. Empty files map to an empty span. Whoever cuts the file short while it is
// mapped kills the reader (SIGBUS): finished files here are never rewritten in place.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&&) noexcept;
  MappedFile& operator=(MappedFile&&) noexcept;
  ~MappedFile();
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace trireme
