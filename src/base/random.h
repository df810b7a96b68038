// Counter-based random numbers: a pure function of (seed, stream, index), so any layout, order or device draws the
// same. Philox4x32-10 (Salmon et al., SC 2011). Streams are named: stream_id("init/model.norm.weight").
//
// Every function gives the same bits on every machine and at every optimisation level: they use integers, and doubles
// only by operations that IEEE 754 rounds correctly (+ - * / sqrt). No libm function is called; the logarithm that the
// tails of the normal distribution need is a polynomial of our own, and their files are compiled without contraction.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace trireme {

std::uint64_t stream_id(std::string_view name);

// Four 32-bit words at position index of the stream: key (seed), counter (index, stream), low words first.
std::array<std::uint32_t, 4> random_block(std::uint64_t seed, std::uint64_t stream, std::uint64_t index);

// Value index of the stream: half (index mod 2) of block index / 2.
std::uint64_t random_u64(std::uint64_t seed, std::uint64_t stream, std::uint64_t index);
// In (0, 1), never 0 or 1: odd multiples of 2^-53, so that u and 1 - u are equally likely.
double random_uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t index);
double random_normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t index);  // normal_quantile of the uniform
// out[i] = random_normal(seed, stream, first + i) * scale, rounded to float: the same bits, many at a time.
void fill_normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t first, double scale, std::span<float> out);

// The inverse of the normal distribution function, relative error below 1e-15 (Wichura 1988, AS 241). p in (0, 1).
double normal_quantile(double p);

// A permutation of 0 .. n-1 as a pure function: Feistel network with cycle walking. n >= 1, index < n.
std::uint64_t permute(std::uint64_t seed, std::uint64_t stream, std::uint64_t n, std::uint64_t index);

}  // namespace trireme
