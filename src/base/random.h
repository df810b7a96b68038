// Counter-based random numbers: a pure function of (seed, stream, index), so any layout, order or device draws the
// same. Philox4x32-10 (Salmon et al., SC 2011). Streams are named: stream_id("init/model.norm.weight").
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace trireme {

std::uint64_t stream_id(std::string_view name);

// Four 32-bit words at position index of the stream.
std::array<std::uint32_t, 4> random_block(std::uint64_t seed, std::uint64_t stream, std::uint64_t index);

std::uint64_t random_u64(std::uint64_t seed, std::uint64_t stream, std::uint64_t index);
double random_uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t index);  // in (0, 1), 53 bits
double random_normal(std::uint64_t seed, std::uint64_t stream,
                     std::uint64_t index);  // inverse CDF by polynomials (Wichura, AS 241)

// A permutation of 0 .. n-1 as a pure function: Feistel network with cycle walking. n >= 1, index < n.
std::uint64_t permute(std::uint64_t seed, std::uint64_t stream, std::uint64_t n, std::uint64_t index);

}  // namespace trireme
