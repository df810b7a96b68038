#include "kernels/cuda/column_sums.cuh"

namespace trireme::kernels::cuda {
namespace {

// Two passes over what a thread holds: the variance of x - mean does not cancel.
template <class G, int kWidth, bool kAligned, class N>
__global__ void __launch_bounds__(G::kThreads* G::kRows)
    normalize(int64_t rows, int64_t width, const N* x, const N* w, const N* b, float eps, N* y, float* mean,
              float* rstd) {
  for (int64_t first = int64_t{blockIdx.x} * G::kRows; first < rows; first += int64_t{gridDim.x} * G::kRows) {
    const int64_t n = first + threadIdx.y, C = n < rows ? width : 0;
    const Held<G, N, kWidth, kAligned> row(x + n * width, C);
    float sum = 0, squares = 0;
    G::template for_each<kWidth>(C, [&](int i, int64_t c) {
      const auto value = row.get(i, c);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) sum += value.at[j];
    });
    const float middle = G::sum(sum) / static_cast<float>(width);
    G::template for_each<kWidth>(C, [&](int i, int64_t c) {
      const auto value = row.get(i, c);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        const float centred = c + j < C ? value.at[j] - middle : 0.0f;
        squares = fmaf(centred, centred, squares);
      }
    });
    const float scale = 1.0f / sqrtf(G::sum(squares) / static_cast<float>(width) + eps);
    G::template for_each<kWidth>(C, [&](int i, int64_t c) {
      auto value = row.get(i, c);
      const auto weight = load_floats<kWidth, kAligned>(w + c, C - c),
                 bias = load_floats<kWidth, kAligned>(b + c, C - c);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) value.at[j] = fmaf((value.at[j] - middle) * scale, weight.at[j], bias.at[j]);
      store<kAligned>(y + n * width + c, C - c, value);
    });
    if (threadIdx.x == 0 && C > 0) {
      mean[n] = middle;
      rstd[n] = scale;
    }
  }
}

// dx = rstd * (g - mean(g) - normed * mean(g * normed)), g = dy * w, normed = (x - mean) * rstd.
template <class G, int kWidth, bool kAligned, class N>
__global__ void __launch_bounds__(G::kThreads* G::kRows)
    input_gradient(int64_t rows, int64_t width, const N* x, const N* w, const N* b, const float* mean,
                   const float* rstd, const N* dy, const N* addend, N* dx, N* y) {
  for (int64_t first = int64_t{blockIdx.x} * G::kRows; first < rows; first += int64_t{gridDim.x} * G::kRows) {
    const int64_t n = first + threadIdx.y, C = n < rows ? width : 0;
    const Held<G, N, kWidth, kAligned> row(x + n * width, C), gradient(dy + n * width, C);
    const float middle = C > 0 ? mean[n] : 0.0f, scale = C > 0 ? rstd[n] : 0.0f;
    float sum = 0, products = 0;
    G::template for_each<kWidth>(C, [&](int i, int64_t c) {
      const auto value = row.get(i, c), d = gradient.get(i, c), weight = load_floats<kWidth, kAligned>(w + c, C - c);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        const float g = d.at[j] * weight.at[j];
        sum += g;
        products = fmaf(g, (value.at[j] - middle) * scale, products);
      }
    });
    const float shift = -G::sum(sum) / static_cast<float>(width);
    const float slope = -G::sum(products) / static_cast<float>(width);
    G::template for_each<kWidth>(C, [&](int i, int64_t c) {
      const auto value = row.get(i, c), d = gradient.get(i, c), weight = load_floats<kWidth, kAligned>(w + c, C - c);
      const int64_t at = n * width + c;
      Floats<kWidth> result = {};
      if (addend != nullptr) result = load_floats<kWidth, kAligned>(addend + at, C - c);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        result.at[j] += (fmaf((value.at[j] - middle) * scale, slope, d.at[j] * weight.at[j]) + shift) * scale;
      }
      store<kAligned>(dx + at, C - c, result);
      if (y == nullptr) return;
      const auto bias = load_floats<kWidth, kAligned>(b + c, C - c);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        result.at[j] = fmaf((value.at[j] - middle) * scale, weight.at[j], bias.at[j]);
      }
      store<kAligned>(y + at, C - c, result);
    });
  }
}

template <class N>
struct WeightGradient {
  int64_t C;
  const N* x;
  const N* dy;
  const float* mean;
  const float* rstd;
  template <bool kAligned, int kWidth>
  __device__ void operator()(Floats<kWidth>& sum, int64_t n, int64_t c, int64_t left) const {
    const float middle = mean[n], scale = rstd[n];
    const auto value = load_floats<kWidth, kAligned>(x + n * C + c, left);
    const auto d = load_floats<kWidth, kAligned>(dy + n * C + c, left);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sum.at[i] = fmaf(d.at[i], (value.at[i] - middle) * scale, sum.at[i]);
  }
};

// launch(Group<..>{}, std::bool_constant<kAligned>{}, blocks, block)
template <int kWidth, class Launch>
void over_rows(int64_t N, int64_t C, bool aligned, Launch launch) {
  if (N == 0) return;
  with_group<kWidth>(C, [&]<class G>(G group) {
    const auto blocks = static_cast<unsigned>(std::min(ceil_div(N, G::kRows), int64_t{1} << 30));
    with_bool(aligned, [&](auto is_aligned) { launch(group, is_aligned, blocks, dim3(G::kThreads, G::kRows)); });
  });
}

}  // namespace

template <class T>
void layernorm_forward(int64_t N, int64_t C, const T* x, const T* w, const T* b, double eps, T* y,
                       typename AccumulatorOf<T>::type* mean, typename AccumulatorOf<T>::type* rstd) {
  constexpr int kWidth = kWidthOf<T>;
  over_rows<kWidth>(N, C, are_aligned<kWidth>(C, x, w, b, y),
                    [&]<class G, class Aligned>(G, Aligned, unsigned blocks, dim3 block) {
                      normalize<G, kWidth, Aligned::value><<<blocks, block, 0, current().stream>>>(
                          N, C, native(x), native(w), native(b), static_cast<float>(eps), native(y), mean, rstd);
                    });
  TRIREME_CUDA_LAUNCHED("layernorm_forward");
}

template <class T>
void layernorm_backward(int64_t N, int64_t C, const T* x, const T* w, const T* b,
                        const typename AccumulatorOf<T>::type* mean, const typename AccumulatorOf<T>::type* rstd,
                        const T* dy, const T* addend, T* dx, T* dw, bool add_dw, T* db, bool add_db, T* y) {
  constexpr int kWidth = kWidthOf<T>;
  if (dw != nullptr) {  // first: dx may lie where dy does
    sum_columns("layernorm_backward", N, C, are_aligned<kWidth>(C, x, dy), dw, add_dw,
                WeightGradient<Native<T>>{C, native(x), native(dy), mean, rstd});
  }
  if (db != nullptr) bias_backward(N, C, dy, db, add_db);
  over_rows<kWidth>(
      N, C, are_aligned<kWidth>(C, x, w, dy, addend, dx, y) && (y == nullptr || are_aligned<kWidth>(C, b)),
      [&]<class G, class Aligned>(G, Aligned, unsigned blocks, dim3 block) {
        input_gradient<G, kWidth, Aligned::value><<<blocks, block, 0, current().stream>>>(
            N, C, native(x), native(w), native(b), mean, rstd, native(dy), native(addend), native(dx), native(y));
      });
  TRIREME_CUDA_LAUNCHED("layernorm_backward");
}

#define TRIREME_INSTANCES(T)                                                                                       \
  template void layernorm_forward(int64_t, int64_t, const T*, const T*, const T*, double, T*,                      \
                                  typename AccumulatorOf<T>::type*, typename AccumulatorOf<T>::type*);             \
  template void layernorm_backward(int64_t, int64_t, const T*, const T*, const T*,                                 \
                                   const typename AccumulatorOf<T>::type*, const typename AccumulatorOf<T>::type*, \
                                   const T*, const T*, T*, T*, bool, T*, bool, T*);
TRIREME_INSTANCES(float)
TRIREME_INSTANCES(bfloat16)
TRIREME_INSTANCES(float16)

}  // namespace trireme::kernels::cuda
