// Runs of normals, in vectors as wide as the processor has. The operations are those of single numbers, each rounded by
// itself, so the width changes no bit.
#include <algorithm>
#include <array>

#include "base/cpu.h"
#include "base/random.h"
#include "base/random_formulas.h"

namespace trireme {
namespace {

using namespace random_formulas;

constexpr int kChunk = 512;

// Number index of the chunk is number first + index of the stream. Loops that the compiler turns into vectors, and the
// tails, a seventh of all, gathered so that they are vectors too.
[[gnu::always_inline]] inline void fill_chunk(std::uint64_t seed, std::uint64_t stream, std::uint64_t first,
                                              double scale, std::array<float, kChunk>& out) {
  std::array<std::uint64_t, kChunk> words;
  for (int i = 0; i < kChunk / 2; ++i) {
    const Words pair = philox(seed, stream, first / 2 + static_cast<std::uint64_t>(i));
    words[2 * i] = pair.first;
    words[2 * i + 1] = pair.second;
  }
  std::array<double, kChunk> p, x;
  for (int i = 0; i < kChunk; ++i) {
    p[i] = to_uniform(words[i]);
    x[i] = central_quantile(p[i] - 0.5);
  }
  std::array<int, kChunk> where;
  std::array<double, kChunk> radius, tail;
  int tails = 0;
  for (int i = 0; i < kChunk; ++i) {
    where[tails] = i;
    const double q = p[i] - 0.5;
    tails += static_cast<int>(q < -kCentral) + static_cast<int>(q > kCentral);
  }
  for (int j = 0; j < tails; ++j) tail[j] = p[where[j]];
  for (int j = 0; j < tails; ++j) {
    radius[j] = tail_radius(tail[j] < 0.5 ? tail[j] : 1 - tail[j]);
    const double quantile = near_tail_quantile(radius[j]);
    tail[j] = tail[j] < 0.5 ? -quantile : quantile;
  }
  for (int j = 0; j < tails; ++j) {
    x[where[j]] = tail[j];
    if (radius[j] > kNear) [[unlikely]]
      x[where[j]] = normal_quantile(p[where[j]]);
  }
  for (int i = 0; i < kChunk; ++i) out[i] = static_cast<float>(x[i] * scale);
}

using Fill = void (*)(std::uint64_t, std::uint64_t, std::uint64_t, double, std::array<float, kChunk>&);

void fill_plain(std::uint64_t seed, std::uint64_t stream, std::uint64_t first, double scale,
                std::array<float, kChunk>& out) {
  fill_chunk(seed, stream, first, scale, out);
}
[[gnu::target("arch=x86-64-v3")]] void fill_avx2(std::uint64_t seed, std::uint64_t stream, std::uint64_t first,
                                                 double scale, std::array<float, kChunk>& out) {
  fill_chunk(seed, stream, first, scale, out);
}
[[gnu::target("arch=x86-64-v4,prefer-vector-width=512")]] void fill_avx512(std::uint64_t seed, std::uint64_t stream,
                                                                           std::uint64_t first, double scale,
                                                                           std::array<float, kChunk>& out) {
  fill_chunk(seed, stream, first, scale, out);
}

Fill choose() {
  const int level = x86_64_level();
  return level >= 4 ? fill_avx512 : level == 3 ? fill_avx2 : fill_plain;
}

}  // namespace

void fill_normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t first, double scale, std::span<float> out) {
  static const Fill fill = choose();
  std::array<float, kChunk> chunk;
  for (std::size_t done = 0; done < out.size();) {
    const std::uint64_t index = first + done;
    const std::size_t skip = index & 1;  // chunks begin at whole blocks
    const std::size_t count = std::min(out.size() - done, kChunk - skip);
    fill(seed, stream, index - skip, scale, chunk);
    std::copy_n(chunk.begin() + skip, count, out.begin() + static_cast<std::ptrdiff_t>(done));
    done += count;
  }
}

}  // namespace trireme
