#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "monitor/metrics.h"
#include "support/expect_error.h"

namespace trireme::monitor {
namespace {

StepRecord sample() {
  return {.step = 10,
          .total_steps = 400,
          .loss = 3.21449,
          .learning_rate = 1e-3,
          .gradient_norm = 2.314,
          .clipped_gradient_norm = 1,
          .tokens_per_s = 12345,
          .data_wait_seconds = 0.0001,
          .memory_bytes = 312'400'000,
          .seconds_left = 92};
}

TEST(ConsoleLine, IsTheFixedLineOfTheDocumentation) {
  EXPECT_EQ(
      console_line(sample()),
      "step 10/400  loss 3.2145  lr 1.00e-03  grad 2.31 -> 1.00  12.3k tok/s  mem 312 MB  data 0.1 ms  left 1m 32s");
}

TEST(ConsoleLine, TellsADevicesMemory) {
  StepRecord record = sample();
  record.device_memory_bytes = 40'589'000'000;
  EXPECT_NE(console_line(record).find("12.3k tok/s  device 40589 MB  mem 312 MB"), std::string::npos);
}

TEST(ConsoleLine, ShortensCountsAndTimesOfEverySize) {
  const auto has = [](const StepRecord& record, const std::string& text) {
    EXPECT_NE(console_line(record).find(text), std::string::npos) << console_line(record) << " lacks " << text;
  };
  const auto speed = [&](double value, const std::string& text) {
    StepRecord record = sample();
    record.tokens_per_s = value;
    has(record, "  " + text + " tok/s");
  };
  speed(0, "0");
  speed(950.4, "950");
  speed(999.6, "1.0k");
  speed(99949, "99.9k");
  speed(99960, "100k");
  speed(999600, "1.0M");
  speed(3.2e9, "3.2G");
  speed(7e12, "7T");
  const auto left = [&](double seconds, const std::string& text) {
    StepRecord record = sample();
    record.seconds_left = seconds;
    has(record, "left " + text);
  };
  left(0, "0s");
  left(59.6, "1m 00s");
  left(3599.6, "1h 00m");
  left(100 * 3600 + 61, "100h 01m");
  left(-1, "?");
  left(std::numeric_limits<double>::infinity(), "?");
  left(std::numeric_limits<double>::quiet_NaN(), "?");
}

TEST(ConsoleLine, ShowsALossThatIsNoNumber) {
  StepRecord record = sample();
  record.loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_NE(console_line(record).find("loss nan"), std::string::npos);
}

TEST(Console, ShowsEveryIntervalAndTheLastStep) {
  ::testing::internal::CaptureStdout();
  const auto console = make_console(3);
  for (std::int64_t step = 1; step <= 8; ++step) {
    StepRecord record = sample();
    record.step = step;
    record.total_steps = 8;
    console->step(record);
    console->event({{"event", "save"}});
  }
  const std::string shown = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(std::count(shown.begin(), shown.end(), '\n'), 3);
  for (const char* step : {"step 3/8", "step 6/8", "step 8/8"}) EXPECT_NE(shown.find(step), std::string::npos);
  testing::expect_error(1000, [] { make_console(0); });
}

TEST(ResidentBytes, GrowsWithTheMemoryThatIsTouched) {
  const std::uint64_t before = resident_bytes();
  EXPECT_GT(before, 1u << 20);
  std::vector<char> memory(64 << 20, 'x');
  EXPECT_GT(resident_bytes(), before + (48u << 20)) << memory[0];
}

}  // namespace
}  // namespace trireme::monitor
