// One process at a time works in a folder. The lock goes with the process, however it ends.
#pragma once
#include <filesystem>

namespace trireme::data {

class FolderLock {
 public:
  // Makes the file if need be. Error TR4010 names the process that holds the lock.
  explicit FolderLock(std::filesystem::path file);
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

 private:
  std::filesystem::path file_;
  int fd_ = -1;
};

}  // namespace trireme::data
