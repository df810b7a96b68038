#include "base/torch_library.h"

#include "base/shared_library.h"

namespace trireme {
namespace {

SharedLibrary& library() {
  static SharedLibrary torch("libtrireme_torch.so",
                             "it lies beside the binary; build anew (make) when it or LibTorch was moved or replaced");
  return torch;
}

}  // namespace

void* torch_symbol(const char* name) {
  return library().symbol(name);
}

TorchLoading::TorchLoading() : thread_([] { library().load(); }) {}

TorchLoading::~TorchLoading() {
  thread_.join();
}

}  // namespace trireme
