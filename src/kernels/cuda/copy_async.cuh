// Copies into shared memory that go on beside their thread.
#pragma once
#include <cstdint>

namespace trireme::kernels::cuda {

__device__ inline std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}
// So many bytes for shared memory, on their way until wait_for_copies; zeros unless they are there.
template <int kBytes>
__device__ void copy_async(void* to, const void* from, bool is_there) {
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(is_there ? 16 : 0)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(to)), "l"(from), "n"(kBytes),
                 "r"(is_there ? kBytes : 0)
                 : "memory");
  }
}
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

// Those since the last call are a batch. Waits until no more than kLeft batches are on their way.
__device__ inline void close_batch() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kLeft>
__device__ void wait_for_batches() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

}  // namespace trireme::kernels::cuda
