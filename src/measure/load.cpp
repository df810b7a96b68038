#include "measure/load.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/device.h"
#include "kernels/kernels.h"
#include "layout/dispatch.h"

namespace trireme::measure {

using engine::Memory;
using engine::MemoryKind;

Memory some_memory(DType dtype, std::int64_t numel, MemoryKind kind) {
  Memory memory(numel * size_of(dtype), kind);
  const auto copy = [&](std::int64_t to, const void* from, std::int64_t bytes) {
    if (kind == MemoryKind::device) return kernels::copy_now(memory.at(to), from, bytes);
    std::memcpy(memory.at(to), from, static_cast<std::size_t>(bytes));
  };
  dispatch(dtype, [&]<class T>(T) {
    const auto values = some_values<T>(std::min<std::int64_t>(numel, 101 << 10));
    auto done = static_cast<std::int64_t>(values.size() * sizeof(T));
    copy(0, values.data(), done);
    for (; done < memory.bytes(); done *= 2) copy(done, memory.at(0), std::min(done, memory.bytes() - done));
  });
  return memory;
}

TokenProduct::TokenProduct(DType dtype, std::int64_t rows, std::int64_t n, std::int64_t k, MemoryKind kind)
    : dtype_(dtype),
      rows_(rows),
      n_(n),
      k_(k),
      a_(some_memory(dtype, rows * k, kind)),
      b_(some_memory(dtype, n * k, kind)),
      c_(rows * n * size_of(dtype), kind) {}

void TokenProduct::run() const {
  dispatch(dtype_, [&]<class T>(T) {
    kernels::gemm(false, true, rows_, n_, k_, reinterpret_cast<const T*>(a_.at(0)), k_,
                  reinterpret_cast<const T*>(b_.at(0)), k_, reinterpret_cast<T*>(c_.at(0)), n_);
  });
}

Load::Load(int threads, int device)
    : thread_([this, threads, device] { device < 0 ? run_on_host(threads) : run_on_device(device); }) {
  at_work_.wait();
}

void Load::run_on_host(int threads) {
  kernels::set_num_threads(threads);
  const TokenProduct product(DType::f32, 1024, 512, 512);
  product.run();
  at_work_.count_down();
  while (!stop_) product.run();
}

// The host stays a few products ahead, so that the device is never without.
void Load::run_on_device(int device) {
  constexpr std::int64_t kSide = 4096;
  constexpr int kAhead = 8;
  kernels::use_device(device);
  const TokenProduct product(DType::bf16, kSide, kSide, kSide, MemoryKind::device);
  const kernels::Stream stream;
  const kernels::OnStream on(stream);
  // What the first product loads would have to wait for collectives that wait for their peers.
  product.run();
  stream.synchronize();
  at_work_.count_down();
  std::vector<kernels::Event> done(kAhead);
  for (std::size_t i = 0; !stop_; i = (i + 1) % done.size()) {
    done[i].synchronize();  // of a round ago; at once before its first
    product.run();
    done[i].record(stream);
  }
  stream.synchronize();
}

Load::~Load() {
  stop_ = true;
  thread_.join();
}

}  // namespace trireme::measure
