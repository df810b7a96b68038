// Kernels that start before the one in front of them has ended, where a device can (sm_90), and then wait for it.
#pragma once
#include "kernels/cuda/kernel.cuh"

namespace trireme::kernels::cuda {

// From here on the blocks of the kernel behind this one may start, where there is room, up to where they wait for it.
__device__ inline void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
// Until the kernel before has ended, and what it wrote is there.
__device__ inline void wait_for_kernel_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Of a kernel that calls wait_for_kernel_before(), on the current stream.
template <class... Parameters, class... Arguments>
void launch_early(const char* name, void (*kernel)(Parameters...), dim3 blocks, dim3 threads, Arguments... arguments) {
  const StreamState& state = current();
  int major = 0;
  TRIREME_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, state.device));
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t launch{};
  launch.gridDim = blocks;
  launch.blockDim = threads;
  launch.stream = state.stream;
  launch.attrs = &early;
  launch.numAttrs = major >= 9 ? 1 : 0;
  check(cudaLaunchKernelEx(&launch, kernel, Parameters(arguments)...), name);
}

}  // namespace trireme::kernels::cuda
