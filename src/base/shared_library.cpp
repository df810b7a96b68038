#include "base/shared_library.h"

#include <dlfcn.h>

#include <filesystem>

#include "base/error.h"

namespace trireme {

namespace fs = std::filesystem;

namespace {

// Beside the binary, or above it as it is for tests; else where the system's loader looks.
std::string find_file(const char* file) {
  std::error_code error;
  const fs::path binary = fs::read_symlink("/proc/self/exe", error);
  for (const fs::path& folder : {binary.parent_path(), binary.parent_path().parent_path()}) {
    if (fs::exists(folder / file, error)) return folder / file;
  }
  return file;
}

}  // namespace

const std::string& SharedLibrary::load() {
  std::call_once(once_, [this] {
    path_ = find_file(file_);
    handle_ = ::dlopen(path_.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (handle_ == nullptr) error_ = ::dlerror();
  });
  return error_;
}

void* SharedLibrary::symbol(const char* name) {
  load();
  void* address = handle_ == nullptr ? nullptr : ::dlsym(handle_, name);
  if (address == nullptr) {
    throw Error(3062, path_, handle_ == nullptr ? error_ : std::string("has no ") + name, remedy_);
  }
  return address;
}

}  // namespace trireme
