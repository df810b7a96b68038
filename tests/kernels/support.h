// Levels of this CPU, random numbers and bit comparison for the kernel tests.
#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <type_traits>
#include <vector>

#include "base/cpu.h"
#include "kernels/kernels.h"
#include "support/seed.h"

namespace trireme::kernels {

inline std::vector<Level> levels_here() {
  std::vector<Level> levels{Level::baseline};
  if (x86_64_level() >= 3) levels.push_back(Level::avx2);
  if (x86_64_level() >= 4) levels.push_back(Level::avx512);
  return levels;
}

template <class T>
T from_double(double value) {
  if constexpr (std::is_same_v<T, double>) {
    return value;
  } else {
    return T(static_cast<float>(value));
  }
}

class Numbers {
 public:
  explicit Numbers(unsigned seed = testing::test_seed()) : seed_(seed), engine_(seed) {}
  unsigned seed() const { return seed_; }
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(n)); }
  template <class T>
  std::vector<T> normal(std::int64_t n, double deviation = 1.0) {
    std::normal_distribution<double> distribution(0.0, deviation);
    std::vector<T> values(n);
    for (T& value : values) value = from_double<T>(distribution(engine_));
    return values;
  }

 private:
  unsigned seed_;
  std::mt19937_64 engine_;
};

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// float or bfloat16.
template <class T>
double sum_of_squares(const FlatTable& table, const std::vector<T>& x) {
  ExactSum sum;
  table.sum_of_squares(std::ssize(x), x.data(), dtype_of<T>, &sum);
  return sum.value();
}

// Sets the compute threads for a while.
class Threads {
 public:
  explicit Threads(int threads) : before_(num_threads()) { set_num_threads(threads); }
  ~Threads() { set_num_threads(before_); }
  Threads(const Threads&) = delete;

 private:
  int before_;
};

}  // namespace trireme::kernels
