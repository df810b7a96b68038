// Libraries that are loaded when something of them is first asked for: libtrireme_torch.so, libtrireme_cuda.so, and
// NCCL's.
#pragma once
#include <mutex>
#include <string>

namespace trireme {

// One library, loaded once a process, by the first call, and never unloaded. Thread-safe.
class SharedLibrary {
 public:
  // remedy: what helps where it cannot be loaded.
  SharedLibrary(const char* file, const char* remedy) : file_(file), remedy_(remedy) {}

  // Empty, or why it cannot be loaded.
  const std::string& load();
  // The address of what it exports. Error TR3062.
  void* symbol(const char* name);

 private:
  const char *file_, *remedy_;
  std::once_flag once_;
  std::string path_, error_;
  void* handle_ = nullptr;
};

}  // namespace trireme
