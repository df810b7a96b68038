#include <algorithm>

#include "base/error.h"
#include "kernels/cuda/early.cuh"
#include "kernels/cuda/vector.cuh"

namespace trireme::kernels::cuda {
namespace {

constexpr int kThreads = 128, kLeastSection = 128;

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

template <class N>
constexpr int kWidth = kWidthOf<N>;  // elements that a thread takes at once

constexpr int kSortIds = 512, kSortWarps = kSortIds / 32;  // of a block; a thread an id
// Rows without an id are cleared in part while others sort: of kSortIds ids the first so many, by warps of their own.
// As many as take no longer than sorting: all rows would keep the next kernel, which clears the rest, waiting.
constexpr int kSortCleared = 160, kSortClearWarps = 8;
constexpr int kSortThreads = kSortIds + 32 * kSortClearWarps;

// Positions in the order of ids, those of an id in their own.
struct Sorted {
  std::int64_t rows;
  std::int32_t *ids, *order;  // of each position: its id, its row
  std::int32_t* starts;       // of each id, and of one more: its first position
  int section;                // rows of an id that one block adds up: a power of two

  // Where the sum of the section at p goes: within `section` positions no more than one run of several sections begins,
  // and no more than one section of another.
  __device__ std::int64_t slot(std::int64_t p, bool is_first) const { return p / section * 2 + (is_first ? 1 : 0); }
};

// A block has kSortIds ids, and looks at all rows for them, twice: how many of each there are, and where each row goes.
// The first kSortWarps of its warps have the rows' parts one behind another; the others clear rows of the gradient, if
// it is given, which are of `pieces` each.
__global__ void __launch_bounds__(kSortThreads)
    sort_kernel(int N, int V, const std::int32_t* ids, Sorted sorted, uint4* gradient, std::int64_t pieces) {
  constexpr int kUnroll = 8;
  __shared__ int places[kSortWarps][kSortIds];  // of a warp's next row of an id
  __shared__ int counts[kSortWarps], lower[kSortWarps];
  __shared__ unsigned without_rows[kSortWarps];  // bits of the block's ids
  const int me = static_cast<int>(threadIdx.x), lane = me % 32, warp = me / 32;
  const bool sorts = warp < kSortWarps;
  let_next_kernel_start();
  const int begin_id = static_cast<int>(blockIdx.x) * kSortIds;
  const int share = (N + kSortWarps - 1) / kSortWarps, begin = min(warp * share, N), end = min(begin + share, N);
  // visit(row, id - begin_id, place) for the warp's rows with an id of the block; how many have a lower one.
  const auto go_through = [&](auto visit) {
    int low = 0;
    for (int first = begin; first < end; first += 32 * kUnroll) {
      int id[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const int n = first + u * 32 + lane;
        id[u] = n < end ? ids[n] : V + kSortIds;
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const int of_block = id[u] - begin_id;
        const bool mine = of_block >= 0 && of_block < kSortIds;
        low += of_block < 0 ? 1 : 0;
        const unsigned lanes = __ballot_sync(~0u, mine);
        if (lanes == 0) continue;
        if (mine) {
          const unsigned same = __match_any_sync(lanes, of_block);
          const int earlier = __popc(same & ((1u << lane) - 1));
          const int place = places[warp][of_block];
          visit(first + u * 32 + lane, of_block, place + earlier);
          __syncwarp(same);
          if (earlier == 0) places[warp][of_block] = place + __popc(same);
        }
        __syncwarp();
      }
    }
    return low;
  };
  if (sorts) {
#pragma unroll
    for (int w = 0; w < kSortWarps; ++w) places[w][me] = 0;
  }
  __syncthreads();
  int low = sorts ? go_through([](int, int, int) {}) : 0;
  __syncthreads();
  int count = 0;
  if (sorts) {
    for (int w = 0; w < kSortWarps; ++w) {
      const int here = places[w][me];
      places[w][me] = count;
      count += here;
    }
  }
  int before = count;  // in this id and the lower ones of the warp
  for (int width = 1; width < 32; width *= 2) {
    const int other = __shfl_up_sync(~0u, before, width);
    if (lane >= width) before += other;
  }
  low = __reduce_add_sync(~0u, low);
  const unsigned none = __ballot_sync(~0u, count == 0);
  if (sorts && lane == 31) {
    counts[warp] = before;
    lower[warp] = low;
    without_rows[warp] = none;
  }
  __syncthreads();
  if (sorts) {
    int start = before - count;
    for (int w = 0; w < kSortWarps; ++w) start += lower[w] + (w < warp ? counts[w] : 0);
    for (int w = 0; w < kSortWarps; ++w) places[w][me] += start;
    if (begin_id + me <= V) sorted.starts[begin_id + me] = start;
  }
  __syncthreads();
  if (!sorts) {
    if (gradient == nullptr) return;
    for (int i = warp - kSortWarps; i < min(kSortCleared, V - begin_id); i += kSortClearWarps) {
      if ((without_rows[i / 32] >> (i % 32) & 1) == 0) continue;
      uint4* row = gradient + (begin_id + i) * pieces;
#pragma unroll 8
      for (std::int64_t c = lane; c < pieces; c += 32) row[c] = uint4{};
    }
    return;
  }
  go_through([&](int row, int of_block, int place) {
    sorted.ids[place] = begin_id + of_block;
    sorted.order[place] = row;
  });
}

// A block at the first position of each section of an id adds its rows up: to the gradient, or, where the id has more,
// into a slot of partial. A thread has so many columns as fill a pack, whatever the alignment. Each block also clears
// its share of the rows without an id, unless the gradient is added to: those that sort_kernel has left.
template <class N, class G>
__global__ void __launch_bounds__(kThreads, 8)
    backward_kernel(Sorted sorted, std::int64_t C, int V, bool aligned, const N* dy, G* dw, bool add, float* partial) {
  constexpr int kUnroll = 8;
  const std::int64_t c = (static_cast<std::int64_t>(blockIdx.y) * kThreads + threadIdx.x) * kWidth<N>;
  const int width = static_cast<int>(max(min(C - c, std::int64_t{kWidth<N>}), std::int64_t{0}));
  const bool whole = aligned && width == kWidth<N>;
  const auto load = [=](const auto* p) {
    return whole ? cuda::load<kWidth<N>, true>(p, 1) : cuda::load<kWidth<N>, false>(p, width);
  };
  const auto store = [=](G* p, const Floats<kWidth<N>>& values) {
    if (whole) return cuda::store<true>(p, 1, values);
    cuda::store<false>(p, width, values);
  };
  const std::int64_t begin = blockIdx.x;
  let_next_kernel_start();
  wait_for_kernel_before();
  // Asked for before stores that they would wait for.
  std::int32_t id = 0;
  bool is_first = false, begins_section = false;
  Neighbours<N, kWidth<N>> first_row = {};
  if (begin < sorted.rows) {
    id = sorted.ids[begin];
    const std::int32_t row = sorted.order[begin];
    is_first = begin == 0 || sorted.ids[begin - 1] != id;
    begins_section = is_first || ((begin - sorted.starts[id]) & (sorted.section - 1)) == 0;
    if (begins_section) first_row = load(dy + row * C + c);
  }
  if (!add) {
    const int share = (V + static_cast<int>(gridDim.x) - 1) / static_cast<int>(gridDim.x);
    const int first = static_cast<int>(blockIdx.x) * share, last = min(first + share, V);
    for (int v = first; v < last; v += kUnroll) {
      bool empty[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        empty[u] = v + u < last && (!aligned || (v + u) % kSortIds >= kSortCleared) &&
                   sorted.starts[v + u] == sorted.starts[v + u + 1];
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (empty[u]) store(dw + (v + u) * C + c, Floats<kWidth<N>>{});
      }
    }
  }
  if (!begins_section) return;
  Floats<kWidth<N>> sum{};
  const auto add_row = [&](const auto& values) {
    const auto x = floats(values);
#pragma unroll
    for (int i = 0; i < kWidth<N>; ++i) sum.at[i] += x.at[i];
  };
  add_row(first_row);
  const std::int64_t last = sorted.starts[id + 1], end = min(begin + sorted.section, last);
  for (std::int64_t p = begin + 1; p < end; p += kUnroll) {
    Neighbours<N, kWidth<N>> x[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (p + u < end) x[u] = load(dy + sorted.order[p + u] * C + c);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (p + u < end) add_row(x[u]);
    }
  }
  if (!is_first || end < last) {
    return cuda::store<false>(partial + sorted.slot(begin, is_first) * C + c, width, sum);
  }
  G* to = dw + id * C + c;
  if (add) add_row(load(to));
  store(to, sum);
}

// Adds up the sections of the run that begins within blockIdx.x's positions, if one of several does, which then has the
// last of them: in their order, a thread a column.
template <class G>
__global__ void __launch_bounds__(kThreads)
    sections_kernel(Sorted sorted, std::int64_t C, const float* partial, G* dw, bool add) {
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * sorted.section;
  wait_for_kernel_before();
  const std::int32_t id = sorted.ids[min(first + sorted.section, sorted.rows) - 1];
  const std::int64_t begin = sorted.starts[id], end = sorted.starts[id + 1];
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  if (begin < first || end - begin <= sorted.section || c >= C) return;
  float sum = partial[sorted.slot(begin, true) * C + c];
  const float* more = partial + sorted.slot(begin + sorted.section, false) * C + c;
  const int sections = static_cast<int>((end - 1 - begin) / sorted.section);
#pragma unroll 16
  for (int i = 0; i < sections; ++i) sum += more[i * 2 * C];
  G* to = dw + id * C + c;
  if (add) sum += to_float(*to);
  *to = from_float<G>(sum);
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
  std::int64_t section = kLeastSection;
  while (section < N && ceil_div(N, section) * 2 * C * static_cast<std::int64_t>(sizeof(float)) > kWorkspaceBytes / 2)
    section *= 2;
  return static_cast<int>(section);
}

}  // namespace

template <class T, class G>
void embedding_backward(std::int64_t N, std::int64_t C, std::int64_t V, const std::int32_t* ids, const T* dy, G* dw,
                        bool add, void* workspace) {
  StreamState& state = current();
  const cudaStream_t stream = state.stream;
  if (N == 0 || C == 0) {
    if (!add) TRIREME_CUDA(cudaMemsetAsync(dw, 0, static_cast<std::size_t>(V * C) * sizeof(G), stream));
    return;
  }
  auto* order = static_cast<std::int32_t*>(workspace);
  auto* ids_in_order = reinterpret_cast<std::int32_t*>(cuda::workspace(state));
  TRIREME_CHECK(N * 4 <= kWorkspaceBytes / 2,
                "an embedding's gradient of so many positions does not fit into a stream's memory");
  const Sorted sorted{N, ids_in_order, order, order + N, section_of(N, C)};
  auto* partial = reinterpret_cast<float*>(ids_in_order) + kWorkspaceBytes / 2 / 4;
  constexpr int kSize = kWidth<Native<T>>;
  constexpr std::int64_t kMostCleared = 32;  // rows, by a block
  const bool aligned = is_aligned(dy) && is_aligned(dw) && C % kSize == 0;
  sort_kernel<<<static_cast<unsigned>(V / kSortIds + 1), kSortThreads, 0, stream>>>(
      static_cast<int>(N), static_cast<int>(V), ids, sorted, add || !aligned ? nullptr : reinterpret_cast<uint4*>(dw),
      C * static_cast<std::int64_t>(sizeof(G)) / 16);
  TRIREME_CUDA_LAUNCHED("embedding_backward");
  const dim3 blocks(static_cast<unsigned>(add ? N : std::max(N, ceil_div(V, kMostCleared))),
                    static_cast<unsigned>(ceil_div(C, kThreads * kSize)));
  launch_early("embedding_backward", backward_kernel<Native<T>, Native<G>>, blocks, kThreads, sorted, C,
               static_cast<int>(V), aligned, native(dy), native(dw), add, partial);
  if (N <= sorted.section) return;
  const dim3 runs(static_cast<unsigned>(ceil_div(N, sorted.section)), static_cast<unsigned>(ceil_div(C, kThreads)));
  launch_early("embedding_backward", sections_kernel<Native<G>>, runs, kThreads, sorted, C, partial, native(dw), add);
}

#define TRIREME_BACKWARD(T, G)                                                                                        \
  template void embedding_backward(std::int64_t, std::int64_t, std::int64_t, const std::int32_t*, const T*, G*, bool, \
                                   void*);
#define TRIREME_INSTANCES(T)                                                                      \
  template void embedding_forward(std::int64_t, std::int64_t, const std::int32_t*, const T*, T*); \
  TRIREME_BACKWARD(T, T)
TRIREME_INSTANCES(float)
TRIREME_INSTANCES(bfloat16)
TRIREME_INSTANCES(float16)
TRIREME_BACKWARD(bfloat16, float)
TRIREME_BACKWARD(float16, float)

}  // namespace trireme::kernels::cuda
