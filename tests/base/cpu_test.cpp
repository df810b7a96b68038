#include "base/cpu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace trireme {
namespace {

// However many processors there are, each number is in one range, and no range is smaller than is worth a thread.
TEST(InParallel, DividesAllOfTheWork) {
  for (const std::int64_t n : {1, 5, 10, 19, 20, 1000, 1009}) {
    constexpr std::int64_t kLeast = 10;
    std::mutex mutex;
    std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
    std::set<std::thread::id> threads;
    in_parallel(n, kLeast, [&](std::int64_t begin, std::int64_t end) {
      const std::lock_guard lock(mutex);
      ranges.emplace_back(begin, end);
      threads.insert(std::this_thread::get_id());
    });
    std::sort(ranges.begin(), ranges.end());
    std::int64_t next = 0;
    for (const auto& [begin, end] : ranges) {
      EXPECT_EQ(begin, next) << n;
      EXPECT_GE(end - begin, std::min(n, kLeast)) << n;
      next = end;
    }
    EXPECT_EQ(next, n);
    EXPECT_EQ(std::ssize(ranges), std::clamp<std::int64_t>(n / kLeast, 1, count_cpus())) << n;
    EXPECT_EQ(threads.contains(std::this_thread::get_id()), true) << n;
  }
}

}  // namespace
}  // namespace trireme
