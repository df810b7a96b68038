#include "measure/rates.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "comm/collectives.h"
#include "kernels/kernels.h"
#include "train/rates_here.h"

namespace trireme::measure {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The median time of a run; at least three, after one that does not count.
template <class Run>
double median_seconds(double seconds, Run run) {
  run();
  std::vector<double> times;
  for (const auto start = Clock::now(); times.size() < 3 || seconds_since(start) < seconds;) {
    const auto begin = Clock::now();
    run();
    times.push_back(seconds_since(begin));
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return std::max(times[times.size() / 2], 1e-9);
}

// The same with as many runs on every rank.
template <class Run>
double median_collective(int runs, Run run) {
  run();
  std::vector<double> times;
  for (int i = 0; i < runs; ++i) {
    const auto begin = Clock::now();
    run();
    times.push_back(seconds_since(begin));
  }
  std::nth_element(times.begin(), times.begin() + runs / 2, times.end());
  return std::max(times[static_cast<std::size_t>(runs) / 2], 1e-9);
}

// Numbers of ordinary size: products of zeros or of denormal numbers are not as fast.
template <class T>
std::vector<T> some_values(std::int64_t count) {
  std::vector<T> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = T(0.01f * static_cast<float>(i % 101) - 0.5f);
  return values;
}

template <class T>
struct Product {
  explicit Product(std::int64_t n, std::int64_t k) : n(n), k(k) {}
  void run() { kernels::gemm(false, true, kRows, n, k, a.data(), k, b.data(), k, c.data(), n); }
  double flops() const { return 2.0 * static_cast<double>(kRows * n * k); }

  static constexpr std::int64_t kRows = 1024;  // tokens
  std::int64_t n, k;
  std::vector<T> a = some_values<T>(kRows * k), b = some_values<T>(n * k), c = std::vector<T>(kRows * n);
};

template <class T>
double product_rate(std::int64_t side, double seconds) {
  Product<T> product(side, side);
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

// Computes until it goes out of scope.
class Load {
 public:
  explicit Load(int threads)
      : thread_([this, threads] {
          kernels::set_num_threads(threads);
          Product<float> product(512, 512);
          while (!stop_) product.run();
        }) {}
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;
  ~Load() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

void measure_collectives(int threads, comm::Communicator& comm, schedule::Rates& rates) {
  const std::int64_t ranks = comm.world_size(), slice = (4 << 20) / ranks;
  const std::vector<float> slot = some_values<float>(slice * ranks);
  std::vector<float> sum(slice);
  std::vector<double> words(ranks);
  const auto wire = static_cast<double>((ranks - 1) * slice * 4);
  rates.collective_latency_s = median_collective(50, [&] {
    comm::all_gather(comm, std::as_bytes(std::span(words).first(1)), std::as_writable_bytes(std::span(words)));
  });
  const auto speed = [&] {
    const double time = median_collective(
        15, [&] { comm::ordered_reduce_scatter(comm, slot.data(), {}, sum.data(), slice, comm.world_size(), true); });
    return wire / time;
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
  if (comm.world_size() > 1) measure_collectives(threads, comm, rates);
  return rates;
}

}  // namespace trireme::measure
