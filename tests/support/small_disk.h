// A file system of a few kilobytes, to run out of space on purpose. Needs the right to mount (root); it lives in a
// mount namespace of this process and vanishes with it.
#pragma once
#include <sched.h>
#include <sys/mount.h>

#include <filesystem>
#include <string>

#include "support/temporary_folder.h"

namespace trireme::testing {

class SmallDisk {
 public:
  explicit SmallDisk(std::size_t kilobytes) {
    mounted_ = ::unshare(CLONE_NEWNS) == 0 && ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
               ::mount("tmpfs", path().c_str(), "tmpfs", 0, ("size=" + std::to_string(kilobytes) + "k").c_str()) == 0;
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  ~SmallDisk() {
    if (mounted_) ::umount2(path().c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }  // false: the test skips, and says so
  const std::filesystem::path& path() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
  bool mounted_ = false;
};

}  // namespace trireme::testing
