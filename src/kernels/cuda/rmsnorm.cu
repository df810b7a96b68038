#include "kernels/cuda/column_sums.cuh"

namespace trireme::kernels::cuda {
namespace {

// Blocks go over rows (y) and the runs of a row (x). plus: 1 or 0, added to the weights.
template <class G, int kWidth, bool kAligned, class N>
__global__ void __launch_bounds__(G::kThreads* G::kRows)
    normalize(NormShape s, const N* x, const N* w, float plus, float eps, N* y, float* rstd) {
  for (int64_t first = int64_t{blockIdx.y} * G::kRows; first < s.N; first += int64_t{gridDim.y} * G::kRows) {
    const int64_t n = first + threadIdx.y, at = n * s.row_stride + blockIdx.x * s.C;
    const int64_t C = n < s.N ? s.C : 0;
    const Held<G, N, kWidth, kAligned> row(x + at, C);
    float squares = 0;
    G::template for_each<kWidth>(C, [&](int i, int64_t c) {
      const auto value = row.get(i, c);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) squares = fmaf(value.at[j], value.at[j], squares);
    });
    const float scale = 1.0f / sqrtf(G::sum(squares) / static_cast<float>(s.C) + eps);
    G::template for_each<kWidth>(C, [&](int i, int64_t c) {
      auto value = row.get(i, c);
      const auto weight = load_floats<kWidth, kAligned>(w + c, C - c);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) value.at[j] = value.at[j] * scale * (weight.at[j] + plus);
      store<kAligned>(y + at + c, C - c, value);
    });
    if (threadIdx.x == 0 && C > 0) rstd[n * s.heads + blockIdx.x] = scale;
  }
}

template <class G, int kWidth, bool kAligned, class N>
__global__ void __launch_bounds__(G::kThreads* G::kRows)
    input_gradient(NormShape s, const N* x, const N* w, float plus, const float* rstd, const N* dy, const N* addend,
                   N* dx, N* y) {
  for (int64_t first = int64_t{blockIdx.y} * G::kRows; first < s.N; first += int64_t{gridDim.y} * G::kRows) {
    const int64_t n = first + threadIdx.y, at = n * s.row_stride + blockIdx.x * s.C;
    const int64_t C = n < s.N ? s.C : 0;
    const Held<G, N, kWidth, kAligned> row(x + at, C), gradient(dy + at, C);
    const float scale = C > 0 ? rstd[n * s.heads + blockIdx.x] : 0.0f;
    float products = 0;
    G::template for_each<kWidth>(C, [&](int i, int64_t c) {
      const auto value = row.get(i, c), d = gradient.get(i, c);
      const auto weight = load_floats<kWidth, kAligned>(w + c, C - c);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) products = fmaf(d.at[j] * (weight.at[j] + plus), value.at[j], products);
    });
    const float slope = -scale * scale * scale * G::sum(products) / static_cast<float>(s.C);
    G::template for_each<kWidth>(C, [&](int i, int64_t c) {
      const auto value = row.get(i, c), d = gradient.get(i, c);
      const auto weight = load_floats<kWidth, kAligned>(w + c, C - c);
      Floats<kWidth> result = {};
      if (addend != nullptr) result = load_floats<kWidth, kAligned>(addend + at + c, C - c);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        result.at[j] += fmaf(value.at[j], slope, d.at[j] * (weight.at[j] + plus) * scale);
      }
      store<kAligned>(dx + at + c, C - c, result);
      if (y == nullptr) return;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) result.at[j] = value.at[j] * scale * (weight.at[j] + plus);
      store<kAligned>(y + at + c, C - c, result);
    });
  }
}

template <class N>
struct WeightGradient {
  NormShape s;
  const N* x;
  const N* dy;
  const float* rstd;
  template <bool kAligned, int kWidth>
  __device__ void operator()(Floats<kWidth>& sum, int64_t n, int64_t c, int64_t left) const {
    for (int64_t h = 0; h < s.heads; ++h) {
      const int64_t at = n * s.row_stride + h * s.C + c;
      const float scale = rstd[n * s.heads + h];
      const auto value = load_floats<kWidth, kAligned>(x + at, left), d = load_floats<kWidth, kAligned>(dy + at, left);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sum.at[i] = fmaf(d.at[i] * scale, value.at[i], sum.at[i]);
    }
  }
};

template <int kWidth, class... N>
bool runs_are_aligned(const NormShape& s, const N*... arrays) {
  return are_aligned<kWidth>(s.row_stride, arrays...) && s.C % kWidth == 0;
}

// launch(Group<..>{}, std::bool_constant<kAligned>{}, grid, block)
template <int kWidth, class Launch>
void over_runs(const NormShape& s, bool aligned, Launch launch) {
  if (s.N == 0 || s.heads == 0) return;
  with_group<kWidth>(s.C, [&]<class G>(G group) {
    const dim3 grid(static_cast<unsigned>(s.heads),
                    static_cast<unsigned>(std::min(kMaxGridY, ceil_div(s.N, G::kRows))));
    with_bool(aligned, [&](auto is_aligned) { launch(group, is_aligned, grid, dim3(G::kThreads, G::kRows)); });
  });
}

}  // namespace

template <class T>
void rmsnorm_forward(const NormShape& shape, const T* x, const T* w, double eps, T* y,
                     typename AccumulatorOf<T>::type* rstd) {
  constexpr int kWidth = kWidthOf<T>;
  over_runs<kWidth>(
      shape, runs_are_aligned<kWidth>(shape, x, w, y), [&]<class G, class Aligned>(G, Aligned, dim3 grid, dim3 block) {
        normalize<G, kWidth, Aligned::value><<<grid, block, 0, current().stream>>>(
            shape, native(x), native(w), shape.one_plus ? 1.0f : 0.0f, static_cast<float>(eps), native(y), rstd);
      });
  TRIREME_CUDA_LAUNCHED("rmsnorm_forward");
}

template <class T>
void rmsnorm_backward(const NormShape& shape, const T* x, const T* w, const typename AccumulatorOf<T>::type* rstd,
                      const T* dy, const T* addend, T* dx, T* dw, bool add_dw, T* y) {
  constexpr int kWidth = kWidthOf<T>;
  if (dw != nullptr) {  // first: dx may lie where dy does
    sum_columns("rmsnorm_backward", shape.N, shape.C, runs_are_aligned<kWidth>(shape, x, dy), dw, add_dw,
                WeightGradient<Native<T>>{shape, native(x), native(dy), rstd});
  }
  over_runs<kWidth>(shape, runs_are_aligned<kWidth>(shape, x, w, dy, addend, dx, y),
                    [&]<class G, class Aligned>(G, Aligned, dim3 grid, dim3 block) {
                      input_gradient<G, kWidth, Aligned::value><<<grid, block, 0, current().stream>>>(
                          shape, native(x), native(w), shape.one_plus ? 1.0f : 0.0f, rstd, native(dy), native(addend),
                          native(dx), native(y));
                    });
  TRIREME_CUDA_LAUNCHED("rmsnorm_backward");
}

#define TRIREME_INSTANCES(T)                                                                                           \
  template void rmsnorm_forward(const NormShape&, const T*, const T*, double, T*, float*);                             \
  template void rmsnorm_backward(const NormShape&, const T*, const T*, const float*, const T*, const T*, T*, T*, bool, \
                                 T*);
TRIREME_INSTANCES(float)
TRIREME_INSTANCES(bfloat16)
TRIREME_INSTANCES(float16)

}  // namespace trireme::kernels::cuda
