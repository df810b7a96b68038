// The formulas of random.h, for one number at a time (random.cpp), for vectors of them (random_fill.cpp) and for CUDA
// devices: the same operations, so the same bits. Every file that takes doubles from here is compiled without
// contraction.
#pragma once
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace trireme::random_formulas {

#ifdef __CUDACC__
#define TRIREME_FORMULA __host__ __device__ __forceinline__
#else
#define TRIREME_FORMULA [[gnu::always_inline]] inline
#endif

TRIREME_FORMULA std::uint32_t low(std::uint64_t word) {
  return static_cast<std::uint32_t>(word);
}
TRIREME_FORMULA std::uint32_t high(std::uint64_t word) {
  return static_cast<std::uint32_t>(word >> 32);
}

// Coefficients from the constant term upwards.
template <std::size_t N>
TRIREME_FORMULA double polynomial(const double (&coefficients)[N], double x) {
  double sum = coefficients[N - 1];
  for (std::size_t i = N - 1; i-- > 0;) sum = sum * x + coefficients[i];
  return sum;
}

// Exact for integers below 2^52, and vectors of it need no conversion instruction.
TRIREME_FORMULA double to_double(std::uint64_t integer) {
  return std::bit_cast<double>(integer | 0x4330000000000000ull) - 0x1p52;
}

// In (0, 1): odd multiples of 2^-53.
TRIREME_FORMULA double to_uniform(std::uint64_t word) {
  return (to_double(word >> 12) + 0.5) * 0x1p-52;
}

// Philox4x32-10 as two 64-bit words.
struct Words {
  std::uint64_t first, second;
};
TRIREME_FORMULA Words philox(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  std::uint32_t key0 = low(seed), key1 = high(seed);
  std::uint32_t c0 = low(index), c1 = high(index), c2 = low(stream), c3 = high(stream);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = 0xD2511F53ull * c0, product1 = 0xCD9E8D57ull * c2;
    c0 = high(product1) ^ c1 ^ key0;
    c1 = low(product1);
    c2 = high(product0) ^ c3 ^ key1;
    c3 = low(product0);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return {c0 | std::uint64_t{c1} << 32, c2 | std::uint64_t{c3} << 32};
}

// Natural logarithm of a normal positive number, within 2 units of the last place: x = m * 2^e with m near 1,
// log m = 2 atanh((m - 1) / (m + 1)). libm's differs in the last bit between machines.
TRIREME_FORMULA double logarithm(double x) {
  constexpr double kLn2High = 0x1.62e42feep-1, kLn2Low = 0x1.a39ef35793c76p-33;  // high part times e is exact
  constexpr double kAtanh[] = {1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9,  1.0 / 11, 1.0 / 13,
                               1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21, 1.0 / 23};
  const auto bits = std::bit_cast<std::uint64_t>(x);
  double m = std::bit_cast<double>((bits & 0x000fffffffffffffull) | 0x3ff0000000000000ull);
  const bool large = m > 1.4142135623730951;
  m = large ? m * 0.5 : m;
  const double exponent = to_double(bits >> 52) - (large ? 1022.0 : 1023.0);
  const double s = (m - 1) / (m + 1);
  const double square = s * s;
  const double log_m = 2 * s + 2 * s * square * polynomial(kAtanh, square);
  return exponent * kLn2High + (exponent * kLn2Low + log_m);
}

// The central region, |p - 1/2| <= kCentral; q = p - 1/2.
TRIREME_FORMULA double central_quantile(double q) {
  constexpr double kNumerator[] = {3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3,
                                   1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
                                   3.3430575583588128105e4, 2.5090809287301226727e3};
  constexpr double kDenominator[] = {1.0,
                                     4.2313330701600911252e1,
                                     6.8718700749205790830e2,
                                     5.3941960214247511077e3,
                                     2.1213794301586595867e4,
                                     3.9307895800092710610e4,
                                     2.8729085735721942674e4,
                                     5.2264952788528545610e3};
  const double r = 0.180625 - q * q;
  return q * (polynomial(kNumerator, r) / polynomial(kDenominator, r));
}

constexpr double kCentral = 0.425;  // the half width of the central region

// The tails: r = sqrt(-log p) of the tail probability p < 0.075.
TRIREME_FORMULA double tail_radius(double p) {
  return std::sqrt(-logarithm(p));
}
constexpr double kNear = 5;
TRIREME_FORMULA double near_tail_quantile(double r) {  // r <= kNear
  constexpr double kNumerator[] = {1.42343711074968357734e0,  4.63033784615654529590e0, 5.76949722146069140550e0,
                                   3.64784832476320460504e0,  1.27045825245236838258e0, 2.41780725177450611770e-1,
                                   2.27238449892691845833e-2, 7.74545014278341407640e-4};
  constexpr double kDenominator[] = {1.0,
                                     2.05319162663775882187e0,
                                     1.67638483018380384940e0,
                                     6.89767334985100004550e-1,
                                     1.48103976427480074590e-1,
                                     1.51986665636164571966e-2,
                                     5.47593808499534494600e-4,
                                     1.05075007164441684324e-9};
  return polynomial(kNumerator, r - 1.6) / polynomial(kDenominator, r - 1.6);
}
TRIREME_FORMULA double far_tail_quantile(double r) {  // r > kNear
  constexpr double kNumerator[] = {6.65790464350110377720e0,  5.46378491116411436990e0,  1.78482653991729133580e0,
                                   2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
                                   2.71155556874348757815e-5, 2.01033439929228813265e-7};
  constexpr double kDenominator[] = {1.0,
                                     5.99832206555887937690e-1,
                                     1.36929880922735805310e-1,
                                     1.48753612908506148525e-2,
                                     7.86869131145613259100e-4,
                                     1.84631831751005468180e-5,
                                     1.42151175831644588870e-7,
                                     2.04426310338993978564e-15};
  return polynomial(kNumerator, r - kNear) / polynomial(kDenominator, r - kNear);
}

TRIREME_FORMULA double quantile(double p) {
  const double q = p - 0.5;
  if (q >= -kCentral && q <= kCentral) return central_quantile(q);
  const double r = tail_radius(q < 0 ? p : 1 - p);
  const double tail = r <= kNear ? near_tail_quantile(r) : far_tail_quantile(r);
  return q < 0 ? -tail : tail;
}

#undef TRIREME_FORMULA

}  // namespace trireme::random_formulas
