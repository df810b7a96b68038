#include <unistd.h>

#include <cstdio>
#include <memory>

#include "monitor/metrics.h"

namespace trireme::monitor {

std::uint64_t resident_bytes() {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen("/proc/self/statm", "re"), &std::fclose);
  unsigned long long total = 0, resident = 0;
  if (!file || std::fscanf(file.get(), "%llu %llu", &total, &resident) != 2) return 0;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace trireme::monitor
