// libtrireme_torch.so, the one library of ours that is linked to LibTorch. LibTorch takes longer to start than most
// commands run, so it is loaded when something of it is first asked for.
#pragma once
#include <thread>

namespace trireme {

// The address of what the library exports; loads it first, once a process. Thread-safe. Error TR3062.
void* torch_symbol(const char* name);

// Loads the library in a thread of its own while this lives, for a caller that will need it but has other things to do
// first. The destructor waits for the end of that. Errors come when a symbol is asked for.
class TorchLoading {
 public:
  TorchLoading();
  TorchLoading(const TorchLoading&) = delete;
  TorchLoading& operator=(const TorchLoading&) = delete;
  ~TorchLoading();

 private:
  std::thread thread_;
};

}  // namespace trireme
