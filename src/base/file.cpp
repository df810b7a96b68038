#include "base/file.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <random>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace trireme {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kWriteBuffer = 1 << 20;

[[noreturn]] void fail(int code, const fs::path& path, const std::string& what, int number) {
  std::string message = what;
  if (number != 0) message += std::string(": ") + std::generic_category().message(number);
  throw Error(code, path.string(), message);
}

[[noreturn]] void fail_write(const fs::path& path, std::uint64_t written, std::uint64_t left, int number) {
  if (number != ENOSPC && number != EDQUOT) fail(kWriteFailed, path, "cannot write", number);
  struct statvfs room {};
  std::string available = "an unknown number of";
  if (::statvfs(path.parent_path().empty() ? "." : path.parent_path().c_str(), &room) == 0) {
    available = std::to_string(static_cast<std::uint64_t>(room.f_bavail) * room.f_frsize);
  }
  throw Error(kDiskFull, path.string(),
              "disk full: " + std::to_string(left) + " more bytes are needed after " + std::to_string(written) + ", " +
                  available + " are free",
              "free space there or choose another folder");
}

class Descriptor {
 public:
  Descriptor(const fs::path& path, int flags, int error_code) {
    do {
      fd_ = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
    } while (fd_ < 0 && errno == EINTR);
    if (fd_ < 0) fail(errno == ENOSPC || errno == EDQUOT ? kDiskFull : error_code, path, "cannot open", errno);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }

  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

struct stat status_of(const Descriptor& file, const fs::path& path) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail(kReadFailed, path, "cannot stat", errno);
  return status;
}

void write_all(int fd, const char* data, std::size_t size, const fs::path& path, std::uint64_t already_written) {
  while (size > 0) {
    const ssize_t written = ::write(fd, data, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_write(path, already_written, size, errno);
    data += written;
    size -= static_cast<std::size_t>(written);
    already_written += static_cast<std::uint64_t>(written);
  }
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

// A whole, durable file under a name of its own beside path; removed when this goes, unless it was renamed.
class TemporaryFile {
 public:
  TemporaryFile(const fs::path& path, std::string_view bytes) : path_(unused_name(path)) {
    FileWriter writer(path_);
    writer.write(std::as_bytes(std::span(bytes)));
    writer.finish();
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() { ::unlink(path_.c_str()); }

  const fs::path& path() const { return path_; }

 private:
  // Process numbers repeat, between containers and after a kill: a random start keeps two writers of one file apart.
  static fs::path unused_name(const fs::path& path) {
    static std::atomic<std::uint64_t> counter = static_cast<std::uint64_t>(std::random_device()()) << 32;
    fs::path name = path;
    name += ".tmp-" + std::to_string(::getpid()) + "-" + std::to_string(counter++);
    return name;
  }

  fs::path path_;
};

bool has_two_names(const fs::path& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && status.st_nlink == 2;
}

// 0 or errno. Over NFS a repeated request can say EEXIST for a link that the first one made, and some file systems have
// no hard links but can rename without replacing.
int link_exclusive(const fs::path& from, const fs::path& to) {
  if (::link(from.c_str(), to.c_str()) == 0) return 0;
  const int number = errno;
  if (has_two_names(from)) return 0;
  if (number != EPERM && number != EOPNOTSUPP && number != ENOSYS) return number;
  return ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0 ? 0 : errno;
}

}  // namespace

std::string read_file(const fs::path& path) {
  const Descriptor file(path, O_RDONLY, kReadFailed);
  const struct stat status = status_of(file, path);
  if (!S_ISREG(status.st_mode) && !S_ISFIFO(status.st_mode)) fail(kReadFailed, path, "is not a file", 0);
  std::string bytes;
  bytes.reserve(static_cast<std::size_t>(std::max<off_t>(status.st_size, 0)));
  for (;;) {
    const std::size_t before = bytes.size();
    bytes.resize(std::max(bytes.capacity(), before + 4096));
    const ssize_t got = ::read(file.get(), bytes.data() + before, bytes.size() - before);
    const int number = errno;
    bytes.resize(before + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0) return bytes;
    if (got < 0 && number != EINTR) fail(kReadFailed, path, "cannot read", number);
  }
}

void write_file_atomic(const fs::path& path, std::string_view bytes) {
  const TemporaryFile temporary(path, bytes);
  if (::rename(temporary.path().c_str(), path.c_str()) != 0)
    fail(kWriteFailed, path, "cannot rename into place", errno);
  fsync_directory(folder_of(path));
}

void create_file_exclusive(const fs::path& path, std::string_view bytes) {
  {
    const TemporaryFile temporary(path, bytes);
    const int number = link_exclusive(temporary.path(), path);
    if (number == EEXIST) throw Error(5010, path.string(), "exists already; it is never overwritten");
    if (number != 0) fail(kWriteFailed, path, "cannot link into place", number);
  }
  try {
    fsync_directory(folder_of(path));
  } catch (...) {  // a record that may not last must not be seen either
    ::unlink(path.c_str());
    throw;
  }
}

fs::path cache_folder() {
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  if (cache != nullptr && *cache != 0) return fs::path(cache) / "trireme";
  if (home != nullptr && *home != 0) return fs::path(home) / ".cache/trireme";
  return {};
}

void fsync_file(const fs::path& path) {
  const Descriptor file(path, O_RDONLY, kWriteFailed);
  if (::fsync(file.get()) != 0) fail(kWriteFailed, path, "cannot fsync", errno);
}

void fsync_directory(const fs::path& path) {
  const Descriptor folder(path, O_RDONLY | O_DIRECTORY, kWriteFailed);
  // Some network file systems have no fsync of folders and make names durable by themselves.
  if (::fsync(folder.get()) != 0 && errno != EINVAL) fail(kWriteFailed, path, "cannot fsync the folder", errno);
}

FileWriter::FileWriter(fs::path path) : path_(std::move(path)) {
  fd_ = Descriptor(path_, O_WRONLY | O_CREAT | O_EXCL, kWriteFailed).release();
  buffer_.reserve(kWriteBuffer);
}

FileWriter::FileWriter(FileWriter&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      buffer_(std::move(other.buffer_)) {}

FileWriter::~FileWriter() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(path_.c_str());
}

void FileWriter::write(std::span<const std::byte> bytes) {
  const auto* data = reinterpret_cast<const char*>(bytes.data());
  if (buffer_.size() + bytes.size() > kWriteBuffer) flush();
  if (bytes.size() >= kWriteBuffer) {
    write_all(fd_, data, bytes.size(), path_, size_);
  } else if (!bytes.empty()) {
    buffer_.append(data, bytes.size());
  }
  size_ += bytes.size();
}

void FileWriter::flush() {
  write_all(fd_, buffer_.data(), buffer_.size(), path_, size_ - buffer_.size());
  buffer_.clear();
}

void FileWriter::finish() {
  flush();
  if (::fsync(fd_) != 0) fail_write(path_, size_, 0, errno);
  if (::close(std::exchange(fd_, -1)) != 0 && errno != EINTR) {
    const int number = errno;
    ::unlink(path_.c_str());
    fail_write(path_, size_, 0, number);
  }
}

MappedFile::MappedFile(const fs::path& path) {
  const Descriptor file(path, O_RDONLY, kReadFailed);
  const struct stat status = status_of(file, path);
  if (!S_ISREG(status.st_mode)) fail(kReadFailed, path, "is not a file", 0);
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ == 0) return;
  data_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data_ == MAP_FAILED) {
    data_ = nullptr;
    fail(kReadFailed, path, "cannot map", errno);
  }
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

}  // namespace trireme
