#include "measure/rates.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "comm/collectives.h"
#include "kernels/kernels.h"
#include "measure/collectives.h"
#include "measure/load.h"
#include "measure/timing.h"
#include "train/rates_here.h"

namespace trireme::measure {
namespace {

double median_seconds(double seconds, const std::function<void()>& run) {
  return std::max(time_in_turn({&run, 1}, seconds, nullptr).front().median, 1e-9);
}

template <class T>
double product_rate(std::int64_t side, double seconds) {
  const TokenProduct product(dtype_of<T>, 1024, side, side);
  return product.flops() / median_seconds(seconds, [&] { product.run(); });
}

template <class T>
double attention_rate(int threads, double seconds) {
  using Acc = typename kernels::AccumulatorOf<T>::type;
  const kernels::AttentionShape s{.B = 2, .T = 512, .H = 8, .K = 8, .D = 64, .scale = 0.125};
  const std::int64_t N = s.B * s.T, width = s.H * s.D;
  const std::vector<T> qkv = some_values<T>(N * s.qkv_width()), dout = some_values<T>(N * width);
  std::vector<T> out(N * width), dqkv(N * s.qkv_width());
  const std::vector<std::int32_t> starts(N);
  std::vector<Acc> lse(s.B * s.H * s.T);
  std::vector<std::byte> workspace(
      kernels::attention_workspace(s, sizeof(T) == 2 ? DType::bf16 : DType::f32, true, threads));
  const double time = median_seconds(seconds, [&] {
    const auto& table = kernels::table<T>();
    table.attention_forward(s, {}, qkv.data(), starts.data(), out.data(), lse.data(), workspace.data());
    table.attention_backward(s, {}, qkv.data(), starts.data(), out.data(), lse.data(), dout.data(), dqkv.data(),
                             workspace.data());
  });
  return 7.0 * static_cast<double>(N * s.T * width) / time;  // two products forward, five backward, as units count them
}

template <class T>
schedule::Rates::Operations operations(int threads, double seconds) {
  return {.small = product_rate<T>(128, seconds),
          .medium = product_rate<T>(512, seconds),
          .large = product_rate<T>(1536, seconds),
          .attention = attention_rate<T>(threads, seconds)};
}

void measure_memory(double seconds, schedule::Rates& rates) {
  constexpr std::int64_t kNumel = 8 << 20;
  std::vector<float> weights = some_values<float>(kNumel), first(kNumel), second(kNumel);
  const std::vector<float> gradient = some_values<float>(kNumel);
  const double add = median_seconds(
      seconds, [&] { kernels::table<float>().accumulate(kNumel, gradient.data(), first.data(), false); });
  rates.bytes_moved_per_s = 3 * 4 * kNumel / add;
  std::fill(first.begin(), first.end(), 0.0f);
  const kernels::OptimizerArguments arguments{1e-4, 0.9, 0.999, 1e-8, 0.1, 0.1, 0.001};
  const kernels::Update update;
  const double step = median_seconds(seconds, [&] {
    kernels::flat_table().adamw(arguments, &update,
                                {kNumel, weights.data(), first.data(), second.data(), gradient.data()});
  });
  rates.optimizer_bytes_per_s = 7 * 4 * kNumel / step;
}

void measure_collectives(int threads, comm::Communicator& comm, double seconds, schedule::Rates& rates) {
  using enum Collective;
  constexpr std::int64_t kBytes = 16 << 20;
  const int ranks = comm.world_size();
  Exchange exchange(comm, DType::f32, kBytes);
  rates.collective_latency_s = exchange.time(all_gather, ranks * std::int64_t{8}, seconds).median;
  const auto speed = [&] {
    return bus_bytes_per_s(reduce_scatter, static_cast<double>(exchange.whole_bytes(reduce_scatter, kBytes)),
                           exchange.time(reduce_scatter, kBytes, seconds).median, ranks);
  };
  rates.collective_bytes_per_s = speed();
  const Load load(threads);
  rates.loaded_collective_bytes_per_s = speed();
}

}  // namespace

schedule::Rates measure_rates(int threads, comm::Communicator& comm, double seconds) {
  kernels::set_num_threads(threads);
  schedule::Rates rates;
  rates.measured_on = train::rates_key(threads);
  rates.fp32 = operations<float>(threads, seconds);
  rates.half = operations<bfloat16>(threads, seconds);
  rates.flops_per_s = rates.fp32.medium;
  measure_memory(seconds, rates);
  comm::barrier(comm);
  if (comm.world_size() > 1) measure_collectives(threads, comm, seconds, rates);
  return rates;
}

}  // namespace trireme::measure
