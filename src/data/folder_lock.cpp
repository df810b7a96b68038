#include "data/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"

namespace trireme::data {
namespace {

// The file may have been removed, or removed and made anew, between opening and locking it.
bool is_still_at(int fd, const std::filesystem::path& file) {
  struct stat locked {
  }, named{};
  return ::fstat(fd, &locked) == 0 && ::stat(file.c_str(), &named) == 0 && locked.st_ino == named.st_ino &&
         locked.st_dev == named.st_dev;
}

std::string this_process() {
  char host[256] = "";
  ::gethostname(host, sizeof(host) - 1);
  return "process " + std::to_string(::getpid()) + " on " + host;
}

std::string holder(int fd) {
  char words[512] = "";
  const ssize_t got = ::pread(fd, words, sizeof(words) - 1, 0);
  return got > 0 ? std::string(words, static_cast<std::size_t>(got)) : "another process";
}

}  // namespace

FolderLock::FolderLock(std::filesystem::path file) : file_(std::move(file)) {
  for (;;) {
    fd_ = ::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd_ < 0) {
      throw Error(errno == ENOSPC || errno == EDQUOT ? kDiskFull : kWriteFailed, file_.string(),
                  "cannot make the lock: " + std::generic_category().message(errno));
    }
    if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      const int number = errno;
      const std::string other = holder(fd_);
      ::close(fd_);
      if (number == EINTR) continue;
      throw Error(4010, file_.parent_path().parent_path().string(),
                  number == EWOULDBLOCK ? "is being prepared by " + other
                                        : "cannot be locked: " + std::generic_category().message(number),
                  number == EWOULDBLOCK ? "wait until that is done, or choose another output folder" : "");
    }
    if (is_still_at(fd_, file_)) break;
    ::close(fd_);
  }
  const std::string words = this_process();
  if (::ftruncate(fd_, 0) != 0 || ::pwrite(fd_, words.data(), words.size(), 0) < 0) {
    const int number = errno;
    ::close(fd_);
    throw Error(number == ENOSPC || number == EDQUOT ? kDiskFull : kWriteFailed, file_.string(),
                "cannot write the lock: " + std::generic_category().message(number));
  }
}

FolderLock::~FolderLock() {
  ::close(fd_);
}

}  // namespace trireme::data
