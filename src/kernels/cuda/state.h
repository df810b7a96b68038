// What the files of this library share: checked calls, and the calling thread's stream with its scratch memory.
#pragma once
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace trireme::kernels::cuda {

// Error TR1305 with the device's own words.
void check(cudaError_t status, const char* call);
void check(cublasStatus_t status, const char* call);
#define TRIREME_CUDA(call) ::trireme::kernels::cuda::check(call, #call)
// Behind a launch: a configuration that the device refuses.
#define TRIREME_CUDA_LAUNCHED(kernel) ::trireme::kernels::cuda::check(cudaGetLastError(), kernel)

struct StreamState {
  cudaStream_t stream = nullptr;
  int device = 0;
  int multiprocessors = 1;
  // Of this stream's kernels, one after another; taken with the first that asks.
  std::byte* workspace = nullptr;
};
constexpr std::int64_t kWorkspaceBytes = std::int64_t{32} << 20;  // what cuBLAS advises for Hopper

StreamState& current();  // of the calling thread, which must have one
std::byte* workspace(StreamState& state);
cublasLtHandle_t cublas();

std::byte* allocate(std::int64_t bytes);  // of the calling thread's device
void free(std::byte* memory);

}  // namespace trireme::kernels::cuda
