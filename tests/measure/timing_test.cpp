#include "measure/timing.h"

#include <gtest/gtest.h>

#include <thread>

namespace trireme::testing {
namespace {

using namespace std::chrono_literals;

TEST(Timing, IsTheMedianAndWhatLiesAroundIt) {
  std::vector<double> seconds;
  for (int i = 100; i >= 0; --i) seconds.push_back(i);
  const measure::Timing timing = measure::timing_of(seconds);
  EXPECT_EQ(timing.median, 50);
  EXPECT_EQ(timing.low, 10);
  EXPECT_EQ(timing.high, 90);
  EXPECT_EQ(timing.runs, 101);
  EXPECT_EQ(measure::timing_of({3}).high, 3);
}

TEST(Timing, OfWorksInTurnIsEachOnesOwn) {
  std::vector<int> order;
  const std::function<void()> works[] = {[&] { order.push_back(0); },
                                         [&] { order.push_back(1), std::this_thread::sleep_for(20ms); }};
  const std::vector<measure::Timing> timings = measure::time_in_turn(works, 0, nullptr);
  EXPECT_EQ(order, (std::vector{0, 1, 0, 1, 0, 1, 0, 1})) << "one round that does not count, and three that do";
  ASSERT_EQ(timings.size(), 2u);
  EXPECT_EQ(timings[1].runs, 3);
  EXPECT_GE(timings[1].low, 0.02);
  EXPECT_LT(timings[0].median, 0.02);
}

TEST(Timing, RunsSoManyRoundsWhereRanksHaveToAgree) {
  int times = 0;
  const std::vector<std::function<void()>> works{[&] { ++times; }};
  EXPECT_EQ(measure::time_rounds(works, 7, nullptr).front().runs, 7);
  EXPECT_EQ(times, 8) << "one round that does not count, and seven that do";
}

TEST(Timing, KnowsWhenTheProcessStarted) {
  const double age = measure::seconds_since_boot() - measure::start_of_process();
  EXPECT_GE(age, -0.02);  // starts are known in ticks of 0.01 s
  std::this_thread::sleep_for(50ms);
  EXPECT_GE(measure::seconds_since_boot() - measure::start_of_process(), age + 0.05);
  EXPECT_LT(age, 3600);
}

}  // namespace
}  // namespace trireme::testing
