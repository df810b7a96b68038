#include "kernels/cuda/library.h"

#define TEXT_OF(number) TEXT(number)
#define TEXT(token) #token

extern "C" const char* trireme_cuda_version() {
  return TRIREME_VERSION " CUDA " TEXT_OF(__CUDACC_VER_MAJOR__) "." TEXT_OF(__CUDACC_VER_MINOR__);
}
