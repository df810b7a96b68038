// Vectors of 64 bytes at every level: one register at avx512, two at avx2, four at baseline. So a lane number means the
// same everywhere, and sums over lanes have one order. bf16 and fp16 are loaded as float and rounded (to nearest even)
// on store.
//
// Everything is in an unnamed namespace, and the level files call no inline function of a standard header: such a
// function, compiled for avx512, could be the copy that the linker keeps for all.
#pragma once
#include <immintrin.h>
#include <math.h>
#include <omp.h>
#include <string.h>

#include "kernels/kernels.h"

#define TRIREME_INLINE inline __attribute__((always_inline))

namespace trireme::kernels::TRIREME_LEVEL {
namespace {

using std::int32_t;
using std::int64_t;
using std::uint16_t;
using std::uint32_t;

#if defined(__AVX512F__)
constexpr int kRegisterBytes = 64;
TRIREME_INLINE __m512 fused(__m512 a, __m512 b, __m512 c) {
  return _mm512_fmadd_ps(a, b, c);
}
TRIREME_INLINE __m512d fused(__m512d a, __m512d b, __m512d c) {
  return _mm512_fmadd_pd(a, b, c);
}
TRIREME_INLINE __m512 root(__m512 a) {
  return _mm512_maskz_sqrt_ps(0xffff, a);  // GCC 12 warns of the unmasked form
}
TRIREME_INLINE __m512d root(__m512d a) {
  return _mm512_maskz_sqrt_pd(0xff, a);
}
TRIREME_INLINE __m512 load_half(const float16* p) {
  __m256i bits;
  memcpy(&bits, p, sizeof(bits));
  return _mm512_maskz_cvtph_ps(0xffff, bits);
}
TRIREME_INLINE void store_half(float16* p, __m512 x) {
  const __m256i bits = _mm512_maskz_cvtps_ph(0xffff, x, _MM_FROUND_TO_NEAREST_INT);
  memcpy(static_cast<void*>(p), &bits, sizeof(bits));
}
#elif defined(__AVX2__)
constexpr int kRegisterBytes = 32;
TRIREME_INLINE __m256 fused(__m256 a, __m256 b, __m256 c) {
  return _mm256_fmadd_ps(a, b, c);
}
TRIREME_INLINE __m256d fused(__m256d a, __m256d b, __m256d c) {
  return _mm256_fmadd_pd(a, b, c);
}
TRIREME_INLINE __m256 root(__m256 a) {
  return _mm256_sqrt_ps(a);
}
TRIREME_INLINE __m256d root(__m256d a) {
  return _mm256_sqrt_pd(a);
}
TRIREME_INLINE __m256 load_half(const float16* p) {
  __m128i bits;
  memcpy(&bits, p, sizeof(bits));
  return _mm256_cvtph_ps(bits);
}
TRIREME_INLINE void store_half(float16* p, __m256 x) {
  const __m128i bits = _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
  memcpy(static_cast<void*>(p), &bits, sizeof(bits));
}
#else
constexpr int kRegisterBytes = 16;
TRIREME_INLINE __m128 fused(__m128 a, __m128 b, __m128 c) {
  return a * b + c;
}
TRIREME_INLINE __m128d fused(__m128d a, __m128d b, __m128d c) {
  return a * b + c;
}
TRIREME_INLINE __m128 root(__m128 a) {
  return _mm_sqrt_ps(a);
}
TRIREME_INLINE __m128d root(__m128d a) {
  return _mm_sqrt_pd(a);
}
TRIREME_INLINE __m128 load_half(const float16* p) {
  long long bits;
  memcpy(&bits, p, sizeof(bits));
  return half_to_float<__m128>((__v4si)_mm_cvtepu16_epi32(_mm_cvtsi64_si128(bits)));
}
TRIREME_INLINE void store_half(float16* p, __m128 x) {
  const __m128i words = (__m128i)float_to_half<__m128, __v4si>(x);
  const long long bits = _mm_cvtsi128_si64(_mm_packus_epi32(words, words));
  memcpy(static_cast<void*>(p), &bits, sizeof(bits));
}
#endif

template <class S, int bytes>
struct RegisterOf {
  typedef S type __attribute__((vector_size(bytes)));
};
template <class S>
using Register = typename RegisterOf<S, kRegisterBytes>::type;

constexpr int kParts = 64 / kRegisterBytes;

template <class S>
struct Vector {
  static constexpr int kLanes = 64 / sizeof(S);
  static constexpr int kPartLanes = kLanes / kParts;
  Register<S> part[kParts];
};

template <class T>
using Acc = typename AccumulatorOf<T>::type;
template <class T>
using VectorOf = Vector<Acc<T>>;
template <class T>
constexpr int kLanesOf = VectorOf<T>::kLanes;

#define TRIREME_BINARY(op)                                               \
  template <class S>                                                     \
  TRIREME_INLINE Vector<S> operator op(Vector<S> a, Vector<S> b) {       \
    Vector<S> y;                                                         \
    for (int i = 0; i < kParts; ++i) y.part[i] = a.part[i] op b.part[i]; \
    return y;                                                            \
  }
TRIREME_BINARY(+)
TRIREME_BINARY(-)
TRIREME_BINARY(*)
TRIREME_BINARY(/)
#undef TRIREME_BINARY

template <class S>
TRIREME_INLINE Vector<S> splat(S value) {
  Vector<S> y;
  for (int i = 0; i < kParts; ++i) y.part[i] = value - Register<S>{};
  return y;
}

// a * b + c, rounded once where the level has the instruction.
template <class S>
TRIREME_INLINE Vector<S> multiply_add(Vector<S> a, Vector<S> b, Vector<S> c) {
  Vector<S> y;
  for (int i = 0; i < kParts; ++i) y.part[i] = fused(a.part[i], b.part[i], c.part[i]);
  return y;
}

template <class S>
TRIREME_INLINE Vector<S> square_root(Vector<S> a) {
  Vector<S> y;
  for (int i = 0; i < kParts; ++i) y.part[i] = root(a.part[i]);
  return y;
}

// b where a is NaN.
template <class S>
TRIREME_INLINE Vector<S> larger(Vector<S> a, Vector<S> b) {
  Vector<S> y;
  for (int i = 0; i < kParts; ++i) y.part[i] = a.part[i] > b.part[i] ? a.part[i] : b.part[i];
  return y;
}

// -1, 0 or 1; 0 of NaN.
template <class S>
TRIREME_INLINE Vector<S> sign(Vector<S> a) {
  const Register<S> zero = {}, one = S{1} + zero;
  Vector<S> y;
  for (int i = 0; i < kParts; ++i) y.part[i] = a.part[i] > zero ? one : a.part[i] < zero ? -one : zero;
  return y;
}

// exp to about one ulp; what is below 2^-125 becomes 0. NaN stays NaN.
TRIREME_INLINE Register<float> exponential(Register<float> x) {
  const Register<float> zero = {};
  const float round = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  const Register<float> shifted = x * 1.44269504f + round;
  const Register<float> n = shifted - round;
  Register<float> r = fused(n, -0.693145752f + zero, x);  // ln 2 in two parts, the first exact in 16 bits
  r = fused(n, -1.42860677e-06f + zero, r);
  Register<float> p = (1.0f / 5040) + zero;  // the Taylor series: its rest is below 2^-27 for |r| <= ln(2) / 2
  p = fused(p, r, (1.0f / 720) + zero);
  p = fused(p, r, (1.0f / 120) + zero);
  p = fused(p, r, (1.0f / 24) + zero);
  p = fused(p, r, (1.0f / 6) + zero);
  p = fused(p, r, 0.5f + zero);
  p = fused(p, r, 1.0f + zero);
  p = fused(p, r, 1.0f + zero);
  using Bits = Register<uint32_t>;
  const Bits exponent = (Bits)shifted - 0x4b400000u + 126u;  // of 2^(n-1): 2^128 has no bits of its own
  const Register<float> y = p * (Register<float>)(exponent << 23) * 2.0f;
  const Register<float> infinity = __builtin_inff() + zero;
  const Register<float> low = x < -86.6f ? zero : y;
  return x > 88.7228394f ? infinity : low;
}
TRIREME_INLINE Register<double> exponential(Register<double> x) {
  for (unsigned i = 0; i < sizeof(x) / sizeof(double); ++i) x[i] = ::exp(x[i]);
  return x;
}
template <class S>
TRIREME_INLINE Vector<S> exponential(Vector<S> x) {
  for (int i = 0; i < kParts; ++i) x.part[i] = exponential(x.part[i]);
  return x;
}

// tanh, exact to about one ulp: a polynomial near 0 (Moshier's Cephes, tanhf), by the exponential elsewhere.
TRIREME_INLINE Register<float> tangent(Register<float> x) {
  const Register<float> zero = {};
  const Register<float> square = x * x;
  Register<float> p = -5.70498872745e-3f + zero;
  p = fused(p, square, 2.06390887954e-2f + zero);
  p = fused(p, square, -5.37397155531e-2f + zero);
  p = fused(p, square, 1.33314422036e-1f + zero);
  p = fused(p, square, -3.33332819422e-1f + zero);
  const Register<float> near = fused(p * square, x, x);
  const Register<float> size = x < zero ? -x : x;
  const Register<float> far = 1.0f - 2.0f / (exponential(size + size) + 1.0f);
  const Register<float> signed_far = x < zero ? -far : far;
  return size < 0.625f ? near : signed_far;
}
TRIREME_INLINE Register<double> tangent(Register<double> x) {
  for (unsigned i = 0; i < sizeof(x) / sizeof(double); ++i) x[i] = ::tanh(x[i]);
  return x;
}
TRIREME_INLINE Register<float> error_function(Register<float> x) {
  for (unsigned i = 0; i < sizeof(x) / sizeof(float); ++i) x[i] = ::erff(x[i]);
  return x;
}
TRIREME_INLINE Register<double> error_function(Register<double> x) {
  for (unsigned i = 0; i < sizeof(x) / sizeof(double); ++i) x[i] = ::erf(x[i]);
  return x;
}
template <class S>
TRIREME_INLINE Vector<S> tangent(Vector<S> x) {
  for (int i = 0; i < kParts; ++i) x.part[i] = tangent(x.part[i]);
  return x;
}
template <class S>
TRIREME_INLINE Vector<S> error_function(Vector<S> x) {
  for (int i = 0; i < kParts; ++i) x.part[i] = error_function(x.part[i]);
  return x;
}

template <class S>
TRIREME_INLINE Vector<S> load(const S* p) {
  Vector<S> y;
  for (int i = 0; i < kParts; ++i) memcpy(&y.part[i], p + i * Vector<S>::kPartLanes, kRegisterBytes);
  return y;
}
template <class S>
TRIREME_INLINE void store(S* p, Vector<S> x) {
  for (int i = 0; i < kParts; ++i) memcpy(p + i * Vector<S>::kPartLanes, &x.part[i], kRegisterBytes);
}

TRIREME_INLINE Vector<float> load(const bfloat16* p) {
  Vector<float> y;
  using Narrow = RegisterOf<uint16_t, kRegisterBytes / 2>::type;
  for (int i = 0; i < kParts; ++i) {
    Narrow bits;
    memcpy(&bits, p + i * Vector<float>::kPartLanes, sizeof(bits));
    y.part[i] = (Register<float>)(__builtin_convertvector(bits, Register<uint32_t>) << 16);
  }
  return y;
}
TRIREME_INLINE void store(bfloat16* p, Vector<float> x) {
  using Narrow = RegisterOf<uint16_t, kRegisterBytes / 2>::type;
  for (int i = 0; i < kParts; ++i) {
    using Word = Register<uint32_t>;
    const Word word = (Word)x.part[i];
    const Word rounded = (word + 0x7fffu + ((word >> 16) & 1u)) >> 16;
    const Word quiet = (word >> 16) | 0x40u;
    const Word bits = x.part[i] == x.part[i] ? rounded : quiet;
    const Narrow narrow = __builtin_convertvector(bits, Narrow);
    memcpy(p + i * Vector<float>::kPartLanes, &narrow, sizeof(narrow));
  }
}

TRIREME_INLINE Vector<float> load(const float16* p) {
  Vector<float> y;
  for (int i = 0; i < kParts; ++i) y.part[i] = load_half(p + i * Vector<float>::kPartLanes);
  return y;
}
TRIREME_INLINE void store(float16* p, Vector<float> x) {
  for (int i = 0; i < kParts; ++i) store_half(p + i * Vector<float>::kPartLanes, x.part[i]);
}

// Doubles from floats.
TRIREME_INLINE Vector<double> load_double(const float* p) {
  Vector<double> y;
  using Narrow = RegisterOf<float, kRegisterBytes / 2>::type;
  for (int i = 0; i < kParts; ++i) {
    Narrow x;
    memcpy(&x, p + i * Vector<double>::kPartLanes, sizeof(x));
    y.part[i] = __builtin_convertvector(x, Register<double>);
  }
  return y;
}
TRIREME_INLINE Vector<double> load_double(const bfloat16* p) {
  using Narrow = RegisterOf<uint16_t, kRegisterBytes / 4>::type;
  using Word = RegisterOf<uint32_t, kRegisterBytes / 2>::type;
  using Half = RegisterOf<float, kRegisterBytes / 2>::type;
  Vector<double> y;
  for (int i = 0; i < kParts; ++i) {
    Narrow bits;
    memcpy(&bits, p + i * Vector<double>::kPartLanes, sizeof(bits));
    y.part[i] = __builtin_convertvector((Half)(__builtin_convertvector(bits, Word) << 16), Register<double>);
  }
  return y;
}

// The number of lanes in use, known when compiling for all but a row's last vector.
struct AllLanes {};
struct SomeLanes {
  int64_t count;
};

template <class T>
TRIREME_INLINE VectorOf<T> load(const T* p, AllLanes) {
  return load(p);
}
// Lanes beyond count are zero.
template <class T>
TRIREME_INLINE VectorOf<T> load(const T* p, SomeLanes lanes) {
  T buffer[kLanesOf<T>] = {};
  memcpy(buffer, p, lanes.count * sizeof(T));
  return load(buffer);
}
template <class T>
TRIREME_INLINE void store(T* p, VectorOf<T> x, AllLanes) {
  store(p, x);
}
template <class T>
TRIREME_INLINE void store(T* p, VectorOf<T> x, SomeLanes lanes) {
  T buffer[kLanesOf<T>];
  store(buffer, x);
  memcpy(p, buffer, lanes.count * sizeof(T));
}

// step(i, lanes) for i = 0, kLanes, ...; the last with SomeLanes if n is not a multiple.
template <int lanes, class Step>
TRIREME_INLINE void for_each_vector(int64_t n, Step step) {
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) step(i, AllLanes{});
  if (i < n) step(i, SomeLanes{n - i});
}

// Folds the upper half of the lanes onto the lower until one is left.
template <class S>
TRIREME_INLINE S sum_of_lanes(Vector<S> x) {
  S lane[Vector<S>::kLanes];
  store(lane, x);
  for (int width = Vector<S>::kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lane[i] += lane[i + width];
  }
  return lane[0];
}
template <class S>
TRIREME_INLINE S max_of_lanes(Vector<S> x) {
  S lane[Vector<S>::kLanes];
  store(lane, x);
  for (int width = Vector<S>::kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lane[i] = lane[i + width] > lane[i] ? lane[i + width] : lane[i];
  }
  return lane[0];
}

TRIREME_INLINE int64_t smaller_of(int64_t a, int64_t b) {
  return a < b ? a : b;
}

// Runs step(begin, end) on contiguous ranges of 0 .. n, one a thread; in the calling thread alone when the work (in
// elements) is not worth a parallel region.
template <class Step>
TRIREME_INLINE void parallel_ranges(int64_t n, int64_t elements, Step step) {
  constexpr int64_t kWorthwhile = 32768;
  const int64_t threads = smaller_of(smaller_of(omp_get_max_threads(), n), elements / kWorthwhile + 1);
  if (threads <= 1) {
    if (n > 0) step(int64_t{0}, n);
    return;
  }
#pragma omp parallel for schedule(static, 1) num_threads(threads)
  for (int64_t i = 0; i < threads; ++i) step(n * i / threads, n * (i + 1) / threads);
}

// The same over elements, cut where cache lines end.
template <class Step>
TRIREME_INLINE void parallel_elements(int64_t n, Step step) {
  constexpr int64_t kBlock = 1024;
  parallel_ranges((n + kBlock - 1) / kBlock, n,
                  [&](int64_t begin, int64_t end) { step(begin * kBlock, smaller_of(end * kBlock, n)); });
}

}  // namespace
}  // namespace trireme::kernels::TRIREME_LEVEL
