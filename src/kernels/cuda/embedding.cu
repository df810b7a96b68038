#include <algorithm>
#include <bit>
#include <cub/device/device_radix_sort.cuh>

#include "base/error.h"
#include "kernels/cuda/kernel.cuh"

namespace trireme::kernels::cuda {
namespace {

constexpr int kThreads = 128;

// A warp a row; rows are of bytes, so that 16-bit types share one kernel.
template <class Unit>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(std::int64_t N, std::int64_t units, const std::int32_t* ids, const Unit* w, Unit* y) {
  constexpr int kRows = kThreads / 32, kUnroll = 4;
  const std::int64_t n = static_cast<std::int64_t>(blockIdx.x) * kRows + threadIdx.x / 32;
  if (n >= N) return;
  const Unit* from = w + ids[n] * units;
  Unit* to = y + n * units;
  for (std::int64_t c = threadIdx.x % 32; c < units; c += kUnroll * 32) {
    Unit unit[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (c + u * 32 < units) unit[u] = from[c + u * 32];
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (c + u * 32 < units) to[c + u * 32] = unit[u];
    }
  }
}

template <class Unit>
void gather(std::int64_t N, std::int64_t units, const std::int32_t* ids, const void* w, void* y) {
  const auto blocks = static_cast<unsigned>(ceil_div(N, kThreads / 32));
  forward_kernel<<<blocks, kThreads, 0, current().stream>>>(N, units, ids, static_cast<const Unit*>(w),
                                                            static_cast<Unit*>(y));
  TRIREME_CUDA_LAUNCHED("embedding_forward");
}

__global__ void __launch_bounds__(kThreads) count_kernel(std::int64_t N, std::int32_t* rows) {
  const std::int64_t n = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (n < N) rows[n] = static_cast<std::int32_t>(n);
}

// Positions in the sorted order.
struct Sorted {
  std::int64_t rows;
  const std::int32_t *ids, *order;  // order: the row of each
  int section;                      // rows of an id that one block adds up

  __device__ bool is_first(std::int64_t p) const { return p == 0 || ids[p - 1] != ids[p]; }
  __device__ bool goes_on(std::int64_t p) const { return p + section < rows && ids[p + section] == ids[p]; }
  // The first position that is not below the id.
  __device__ std::int64_t begin_of(std::int32_t id) const {
    std::int64_t low = 0, high = rows;
    while (low < high) {
      const std::int64_t middle = (low + high) / 2;
      if (ids[middle] < id) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }
  // Where the sum of the section at p goes: within `section` positions no more than one run of several sections begins,
  // and no more than one section of another.
  __device__ std::int64_t slot(std::int64_t p) const { return p / section * 2 + (is_first(p) ? 1 : 0); }
};

// The rows that have the same id lie side by side in the sorted order. A block at the first row of each section of them
// adds the section up: to the gradient, or, where there are more, into a slot of partial. A thread has so many columns
// as fill a pack, whatever the alignment.
template <class N>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(Sorted sorted, std::int64_t C, bool aligned, const N* dy, N* dw, bool add, float* partial) {
  constexpr int kSize = Pack<N>::kSize, kUnroll = 8;
  __shared__ std::int32_t tile[kThreads];
  const std::int64_t begin = blockIdx.x;
  const std::int32_t id = sorted.ids[begin], row = sorted.order[begin];
  const bool is_first = sorted.is_first(begin), is_alone = begin + 1 == sorted.rows || sorted.ids[begin + 1] != id;
  if (!is_first) {
    if (begin < sorted.section || sorted.ids[begin - sorted.section] != id) return;
    if ((begin - sorted.begin_of(id)) % sorted.section != 0) return;
  }
  const std::int64_t c = (static_cast<std::int64_t>(blockIdx.y) * kThreads + threadIdx.x) * kSize;
  const int width = static_cast<int>(max(min(C - c, std::int64_t{kSize}), std::int64_t{0}));
  const bool whole = aligned && width == kSize;
  const auto load = [=](const N* p) {
    if (whole) return load_pack(p);
    Pack<N> pack{};
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      if (i < width) pack.element[i] = p[i];
    }
    return pack;
  };
  float sum[kSize] = {};
  const auto add_pack = [&](const Pack<N>& pack) {
#pragma unroll
    for (int i = 0; i < kSize; ++i) sum[i] += to_float(pack.element[i]);
  };
  add_pack(load(dy + row * C + c));
  const std::int64_t end = is_alone ? begin : min(begin + sorted.section, sorted.rows);
  for (std::int64_t first = begin + 1; first < end; first += kThreads) {
    const std::int64_t mine = first + threadIdx.x;
    const bool same = mine < end && sorted.ids[mine] == id;
    const int count = __syncthreads_count(same);  // they are in front: ids are sorted
    if (same) tile[threadIdx.x] = sorted.order[mine];
    __syncthreads();
    for (int i = 0; i < count; i += kUnroll) {
      Pack<N> x[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (i + u < count) x[u] = load(dy + tile[i + u] * C + c);
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (i + u < count) add_pack(x[u]);
      }
    }
    if (count < kThreads) break;
  }
  if (!is_first || (!is_alone && sorted.goes_on(begin))) {
    float* to = partial + sorted.slot(begin) * C + c;
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      if (i < width) to[i] = sum[i];
    }
    return;
  }
  N* to = dw + id * C + c;
  if (add) add_pack(load(to));
  Pack<N> result;
#pragma unroll
  for (int i = 0; i < kSize; ++i) result.element[i] = from_float<N>(sum[i]);
  if (whole) return store_pack(to, result);
#pragma unroll
  for (int i = 0; i < kSize; ++i) {
    if (i < width) to[i] = result.element[i];
  }
}

// Adds up the sections of the run that begins within blockIdx.x's positions, if one of several does: in their order, a
// thread a column.
template <class N>
__global__ void __launch_bounds__(kThreads)
    sections_kernel(Sorted sorted, std::int64_t C, const float* partial, N* dw, bool add) {
  __shared__ std::int64_t found;
  if (threadIdx.x == 0) found = -1;
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < sorted.section; i += kThreads) {
    const std::int64_t p = static_cast<std::int64_t>(blockIdx.x) * sorted.section + i;
    if (p < sorted.rows && sorted.goes_on(p) && sorted.is_first(p)) found = p;
  }
  __syncthreads();
  const std::int64_t begin = found, c = static_cast<std::int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  if (begin < 0 || c >= C) return;
  const std::int32_t id = sorted.ids[begin];
  const std::int64_t end = sorted.begin_of(id + 1);
  float sum = partial[sorted.slot(begin) * C + c];
#pragma unroll 8
  for (std::int64_t p = begin + sorted.section; p < end; p += sorted.section)
    sum += partial[p / sorted.section * 2 * C + c];
  N* to = dw + id * C + c;
  if (add) sum += to_float(*to);
  *to = from_float<N>(sum);
}

// ids in order, and the row of each: order[i], those of one id in order too. order is the caller's memory, the rest,
// sorted ids included, lies in the stream's.
const std::int32_t* sort_by_id(std::int64_t N, std::int64_t V, const std::int32_t* ids, std::int32_t* order) {
  StreamState& state = current();
  auto* sorted = reinterpret_cast<std::int32_t*>(workspace(state));
  const std::int64_t padded = ceil_div(N, 64) * 64;
  std::int32_t* rows = sorted + padded;
  std::int32_t* scratch = rows + padded;
  const auto bits = std::max(1, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(V - 1))));
  const auto sort = [&](void* memory, std::size_t& bytes) {
    TRIREME_CUDA(cub::DeviceRadixSort::SortPairs(memory, bytes, ids, sorted, rows, order, N, 0, bits, state.stream));
  };
  std::size_t bytes = 0;
  sort(nullptr, bytes);
  TRIREME_CHECK(
      2 * padded * 4 + static_cast<std::int64_t>(bytes) <= kWorkspaceBytes && padded * 4 <= kWorkspaceBytes / 2,
      "an embedding's gradient of so many positions does not fit into a stream's memory");
  count_kernel<<<static_cast<unsigned>(ceil_div(N, kThreads)), kThreads, 0, state.stream>>>(N, rows);
  TRIREME_CUDA_LAUNCHED("embedding_backward");
  sort(scratch, bytes);
  return sorted;
}

}  // namespace

template <class T>
void embedding_forward(std::int64_t N, std::int64_t C, const std::int32_t* ids, const T* w, T* y) {
  if (N == 0 || C == 0) return;
  const std::int64_t bytes = C * static_cast<std::int64_t>(sizeof(T));
  if (is_aligned(w) && is_aligned(y) && bytes % 16 == 0) return gather<uint4>(N, bytes / 16, ids, w, y);
  gather<Native<T>>(N, C, ids, w, y);
}

namespace {

// Rows of a section: as few as leave room for the sections' sums.
int section_of(std::int64_t N, std::int64_t C) {
  std::int64_t section = kThreads;
  while (section < N && ceil_div(N, section) * 2 * C * static_cast<std::int64_t>(sizeof(float)) > kWorkspaceBytes / 2)
    section *= 2;
  return static_cast<int>(section);
}

}  // namespace

template <class T>
void embedding_backward(std::int64_t N, std::int64_t C, std::int64_t V, const std::int32_t* ids, const T* dy, T* dw,
                        bool add, void* workspace) {
  const cudaStream_t stream = current().stream;
  if (!add) TRIREME_CUDA(cudaMemsetAsync(dw, 0, static_cast<std::size_t>(V * C) * sizeof(T), stream));
  if (N == 0 || C == 0) return;
  auto* order = static_cast<std::int32_t*>(workspace);
  const std::int32_t* ids_in_order = sort_by_id(N, V, ids, order);
  const Sorted sorted{N, ids_in_order, order, section_of(N, C)};
  // Behind the sorted ids, over what sorting needed.
  auto* partial = reinterpret_cast<float*>(const_cast<std::int32_t*>(ids_in_order) + ceil_div(N, 64) * 64);
  constexpr int kSize = Pack<Native<T>>::kSize;
  const bool aligned = is_aligned(dy) && is_aligned(dw) && C % kSize == 0;
  const dim3 blocks(static_cast<unsigned>(N), static_cast<unsigned>(ceil_div(C, kThreads * kSize)));
  backward_kernel<<<blocks, kThreads, 0, stream>>>(sorted, C, aligned, native(dy), native(dw), add, partial);
  TRIREME_CUDA_LAUNCHED("embedding_backward");
  if (N <= sorted.section) return;
  const dim3 runs(static_cast<unsigned>(ceil_div(N, sorted.section)), static_cast<unsigned>(ceil_div(C, kThreads)));
  sections_kernel<<<runs, kThreads, 0, stream>>>(sorted, C, partial, native(dw), add);
  TRIREME_CUDA_LAUNCHED("embedding_backward");
}

#define TRIREME_INSTANCES(T)                                                                                          \
  template void embedding_forward(std::int64_t, std::int64_t, const std::int32_t*, const T*, T*);                     \
  template void embedding_backward(std::int64_t, std::int64_t, std::int64_t, const std::int32_t*, const T*, T*, bool, \
                                   void*);
TRIREME_INSTANCES(float)
TRIREME_INSTANCES(bfloat16)
TRIREME_INSTANCES(float16)

}  // namespace trireme::kernels::cuda
