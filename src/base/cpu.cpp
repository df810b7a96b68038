#include "base/cpu.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <thread>
#include <vector>

namespace trireme {

int x86_64_level() {
  // Feature by feature: not every compiler and checker knows the names of the levels.
  if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("popcnt")) return 1;
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("bmi2")) return 2;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512cd") || !__builtin_cpu_supports("avx512dq") ||
      !__builtin_cpu_supports("avx512vl")) {
    return 3;
  }
  return 4;
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

int count_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

void in_parallel(std::int64_t n, std::int64_t least, const std::function<void(std::int64_t, std::int64_t)>& work) {
  const std::int64_t threads = std::clamp<std::int64_t>(n / least, 1, count_cpus());
  std::vector<std::thread> others;
  for (std::int64_t i = 1; i < threads; ++i) {
    others.emplace_back([&, i] { work(n * i / threads, n * (i + 1) / threads); });
  }
  work(0, n / threads);
  for (std::thread& other : others) other.join();
}

}  // namespace trireme
