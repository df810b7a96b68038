#include "measure/rates.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "comm/collectives.h"
#include "kernels/kernels.h"
#include "layers/attention.h"
#include "measure/collectives.h"
#include "measure/device.h"
#include "measure/load.h"
#include "measure/timing.h"
#include "train/rates_here.h"

namespace trireme::measure {
namespace {

using engine::Memory;
using engine::MemoryKind;

// Of the works that are timed: what fills a processor, or a device.
struct Sizes {
  std::int64_t rows, large;  // of products: tokens, and the smallest side of the largest
  BatchShape attention;
  std::int64_t heads, head_dim;
  std::int64_t numel;  // of what is added up, updated and copied
  std::int64_t collective_bytes;
};
constexpr Sizes kOnCpu{.rows = 1024,
                       .large = 1536,
                       .attention = {2, 512},
                       .heads = 8,
                       .head_dim = 64,
                       .numel = 8 << 20,
                       .collective_bytes = 16 << 20};
constexpr Sizes kOnDevice{.rows = 8192,
                          .large = 4096,
                          .attention = {2, 2048},
                          .heads = 16,
                          .head_dim = 128,
                          .numel = 64 << 20,
                          .collective_bytes = 256 << 20};

class Measurement {
 public:
  explicit Measurement(const RatesOptions& options)
      : options_(options), sizes_(options.device < 0 ? kOnCpu : kOnDevice), place_(options.device) {}

  schedule::Rates::Operations operations(DType dtype) const {
    return {.small = product_rate(dtype, 128),
            .medium = product_rate(dtype, 512),
            .large = product_rate(dtype, sizes_.large),
            .attention = attention_rate(dtype)};
  }

  void measure_memory(schedule::Rates& rates) const {
    const std::int64_t n = sizes_.numel;
    {
      const Memory sum = floats(place_.memory()), addend = floats(place_.memory());
      const double add = median_seconds([&] { kernels::table<float>().accumulate(n, of(sum), of(addend), false); });
      rates.bytes_moved_per_s = 3 * 4 * static_cast<double>(n) / add;
    }
    rates.optimizer_bytes_per_s = update_rate(place_.memory());
    if (place_.stream() == nullptr) return;
    {
      const Memory there = floats(place_.memory()), host(there.bytes(), MemoryKind::pinned);
      const double copy = median_seconds([&] { kernels::copy(host.at(0), there.at(0), host.bytes()); });
      rates.host_copy_bytes_per_s = static_cast<double>(host.bytes()) / copy;
    }
    const kernels::OnHost on_host;
    const int threads = kernels::num_threads();
    kernels::set_num_threads(options_.host_threads);
    rates.host_optimizer_bytes_per_s = update_rate(MemoryKind::pinned);
    kernels::set_num_threads(threads);
  }

  void measure_collectives(comm::Communicator& comm, schedule::Rates& rates) const {
    using enum Collective;
    const int ranks = comm.world_size();
    const Place place(options_.device, /*high_priority=*/true);
    Exchange exchange(comm, options_.device < 0 ? DType::f32 : DType::bf16, sizes_.collective_bytes, place.stream());
    rates.collective_latency_s = exchange.time(all_gather, ranks * std::int64_t{8}, options_.seconds).median;
    const auto speed = [&] {
      const std::int64_t bytes = exchange.whole_bytes(reduce_scatter, sizes_.collective_bytes);
      return bus_bytes_per_s(reduce_scatter, static_cast<double>(bytes),
                             exchange.time(reduce_scatter, bytes, options_.seconds).median, ranks);
    };
    rates.collective_bytes_per_s = speed();
    const Load load(options_.threads, options_.device);
    rates.loaded_collective_bytes_per_s = speed();
  }

 private:
  double median_seconds(const std::function<void()>& run) const { return median_seconds(run, place_.stream()); }
  double median_seconds(const std::function<void()>& run, const kernels::Stream* stream) const {
    return std::max(time_in_turn({&run, 1}, options_.seconds, stream).front().median, 1e-9);
  }

  Memory floats(MemoryKind kind) const { return some_memory(DType::f32, sizes_.numel, kind); }
  static float* of(const Memory& memory) { return reinterpret_cast<float*>(memory.at(0)); }

  // Bytes that AdamW reads and writes a second, of fp32 states in memory of this kind.
  double update_rate(MemoryKind kind) const {
    const Memory weights = floats(kind), gradient = floats(kind), first = floats(kind), second = floats(kind);
    kernels::zero(first.at(0), first.bytes());
    kernels::zero(second.at(0), second.bytes());
    const kernels::OptimizerArguments arguments{1e-4, 0.9, 0.999, 1e-8, 0.1, 0.1, 0.001};
    const Memory update(sizeof(kernels::Update), kind);
    const kernels::Update unclipped;
    kernels::copy(update.at(0), &unclipped, sizeof unclipped);
    const auto step = [&] {
      kernels::flat_table().adamw(arguments, reinterpret_cast<const kernels::Update*>(update.at(0)),
                                  {sizes_.numel, of(weights), of(first), of(second), of(gradient)});
    };
    const kernels::Stream* stream = kind == MemoryKind::device ? place_.stream() : nullptr;
    return 7 * static_cast<double>(weights.bytes()) / median_seconds(step, stream);
  }

  double product_rate(DType dtype, std::int64_t side) const {
    const TokenProduct product(dtype, sizes_.rows, side, side, place_.memory());
    return product.flops() / median_seconds([&] { product.run(); });
  }

  double attention_rate(DType dtype) const {
    const BatchShape& batch = sizes_.attention;
    const kernels::AttentionShape s{.B = batch.batch,
                                    .T = batch.sequence,
                                    .H = sizes_.heads,
                                    .K = sizes_.heads,
                                    .D = sizes_.head_dim,
                                    .scale = 1 / std::sqrt(static_cast<double>(sizes_.head_dim))};
    const std::int64_t N = batch.tokens(), width = s.H * s.D;
    std::vector<Memory> memory;
    const auto tensor = [&](DType type, std::initializer_list<std::int64_t> of) {
      const Tensor shape(nullptr, type, of);
      return Tensor(memory.emplace_back(some_memory(type, shape.numel(), place_.memory())).at(0), type, of);
    };
    const Tensor qkv = tensor(dtype, {N, s.qkv_width()}), dqkv = tensor(dtype, {N, s.qkv_width()});
    const Tensor out = tensor(dtype, {N, width}), dout = tensor(dtype, {N, width});
    const Tensor lse = tensor(DType::f32, {s.B, s.H, s.T});
    const std::int64_t bytes = attention_workspace_bytes(s, dtype, Phase::backward, options_.threads);
    const Memory scratch(bytes, place_.memory());
    const Tensor workspace(scratch.at(0), DType::u8, {bytes});
    const std::vector<std::int32_t> none(N);
    const std::int32_t* starts = place_.stream() == nullptr ? none.data() : nullptr;
    const double time = median_seconds([&] {
      attention_forward(s, {}, qkv, starts, out, lse, workspace);
      attention_backward(s, {}, qkv, starts, out, lse, dout, dqkv, workspace);
    });
    return 7.0 * static_cast<double>(N * s.T * width) /
           time;  // two products forward, five backward, as units count them
  }

  const RatesOptions& options_;
  const Sizes& sizes_;
  const Place place_;
};

}  // namespace

schedule::Rates measure_rates(const RatesOptions& options, comm::Communicator& comm) {
  if (options.device < 0) kernels::set_num_threads(options.threads);
  schedule::Rates rates;
  rates.of_device = options.device >= 0;
  rates.measured_on = rates.of_device ? train::device_rates_key(options.device) : train::rates_key(options.threads);
  const Measurement measurement(options);
  rates.fp32 = measurement.operations(DType::f32);
  rates.half = measurement.operations(DType::bf16);
  rates.flops_per_s = rates.fp32.medium;
  measurement.measure_memory(rates);
  comm::barrier(comm);
  if (comm.world_size() > 1) measurement.measure_collectives(comm, rates);
  return rates;
}

}  // namespace trireme::measure
