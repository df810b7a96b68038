// Matrix products on numbers of ordinary size: products of zeros or of denormal numbers are not as fast.
#pragma once
#include <atomic>
#include <cstdint>
#include <latch>
#include <thread>
#include <vector>

#include "engine/memory.h"
#include "layout/dtype.h"

namespace trireme::measure {

template <class T>
std::vector<T> some_values(std::int64_t count) {
  std::vector<T> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = T(0.01f * static_cast<float>(i % 101) - 0.5f);
  return values;
}
// The same on the host or on the calling thread's device.
engine::Memory some_memory(DType dtype, std::int64_t numel, engine::MemoryKind kind = engine::MemoryKind::host);

// A product of `rows` tokens by weights [n, k], where its operands lie.
class TokenProduct {
 public:
  TokenProduct(DType dtype, std::int64_t rows, std::int64_t n, std::int64_t k,
               engine::MemoryKind kind = engine::MemoryKind::host);
  void run() const;
  double flops() const { return 2.0 * static_cast<double>(rows_ * n_ * k_); }

 private:
  DType dtype_;
  std::int64_t rows_, n_, k_;
  engine::Memory a_, b_, c_;
};

// Computes on a thread of its own, from before its constructor returns until it goes out of scope.
class Load {
 public:
  explicit Load(int threads, int device = -1);  // device: below 0 the CPU, with so many threads
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;
  ~Load();

 private:
  void run_on_host(int threads);
  void run_on_device(int device);
  std::latch at_work_{1};
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace trireme::measure
