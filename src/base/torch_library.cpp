#include "base/torch_library.h"

#include <dlfcn.h>

#include <filesystem>
#include <string>

#include "base/error.h"

namespace trireme {

namespace fs = std::filesystem;

namespace {

constexpr const char* kFile = "libtrireme_torch.so";

// Beside the binary, or above it as it is for tests; else where the system's loader looks.
std::string find_file() {
  std::error_code error;
  const fs::path binary = fs::read_symlink("/proc/self/exe", error);
  for (const fs::path& folder : {binary.parent_path(), binary.parent_path().parent_path()}) {
    if (fs::exists(folder / kFile, error)) return folder / kFile;
  }
  return kFile;
}

struct Library {
  std::string file = find_file();
  void* handle = ::dlopen(file.c_str(), RTLD_LAZY | RTLD_LOCAL);
  std::string error = handle == nullptr ? ::dlerror() : "";
};

const Library& library() {
  static const Library loaded;
  return loaded;
}

}  // namespace

void* torch_symbol(const char* name) {
  void* symbol = library().handle == nullptr ? nullptr : ::dlsym(library().handle, name);
  if (symbol == nullptr) {
    throw Error(3062, library().file, library().handle == nullptr ? library().error : std::string("has no ") + name,
                "it lies beside the binary; build anew (make) when it or LibTorch was moved or replaced");
  }
  return symbol;
}

TorchLoading::TorchLoading() : thread_([] { library(); }) {}

TorchLoading::~TorchLoading() {
  thread_.join();
}

}  // namespace trireme
