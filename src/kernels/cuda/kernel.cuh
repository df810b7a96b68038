// What the kernels of this folder share: element types of the device, vectors of 16 bytes, sums over a block.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/state.h"
#include "kernels/level.h"

namespace trireme::kernels::cuda {

template <class T>
struct NativeOf {
  using type = T;
};
template <>
struct NativeOf<bfloat16> {
  using type = __nv_bfloat16;
};
template <>
struct NativeOf<float16> {
  using type = __half;
};
template <class T>
using Native = typename NativeOf<T>::type;

// The device's own type for an array of ours: the same bits.
template <class T>
Native<T>* native(T* p) {
  return reinterpret_cast<Native<T>*>(p);
}
template <class T>
const Native<T>* native(const T* p) {
  return reinterpret_cast<const Native<T>*>(p);
}

__device__ inline float to_float(float x) {
  return x;
}
__device__ inline float to_float(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
__device__ inline float to_float(__half x) {
  return __half2float(x);
}
template <class N>
__device__ N from_float(float x);
template <>
__device__ inline float from_float<float>(float x) {
  return x;
}
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ inline __half from_float<__half>(float x) {
  return __float2half_rn(x);
}

// So many elements as 16 bytes hold, loaded and stored at once; p is a multiple of 16.
template <class N>
struct alignas(16) Pack {
  static constexpr int kSize = 16 / static_cast<int>(sizeof(N));
  N element[kSize];
};
template <class N>
__device__ Pack<N> load_pack(const N* p) {
  return *reinterpret_cast<const Pack<N>*>(p);
}
template <class N>
__device__ void store_pack(N* p, const Pack<N>& pack) {
  *reinterpret_cast<Pack<N>*>(p) = pack;
}
inline bool is_aligned(const void* p) {
  return reinterpret_cast<std::uintptr_t>(p) % 16 == 0;
}

// For results of type N: what the fast ones are wrong by is lost when rounding to 16 bits.
template <class N>
__device__ float exponential(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.4426950408889634f));
  return y;
}
template <>
__device__ inline float exponential<float>(float x) {
  return expf(x);
}
template <class N>
__device__ float quotient(float a, float b) {
  float reciprocal;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(b));
  return a * reciprocal;
}
template <>
__device__ inline float quotient<float>(float a, float b) {
  return a / b;
}

__device__ inline float warp_sum(float x) {
  for (int width = 16; width > 0; width /= 2) x += __shfl_xor_sync(0xffffffffu, x, width);
  return x;
}
__device__ inline float warp_max(float x) {
  for (int width = 16; width > 0; width /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, width));
  return x;
}

// Blocks are counted for so many, an H100's, whatever the device has: the order of sums follows from it.
constexpr std::int64_t kFillingMultiprocessors = 132;

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace trireme::kernels::cuda
