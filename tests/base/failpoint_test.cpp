#include "base/failpoint.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>
#include <vector>

#include "support/expect_error.h"

namespace trireme {
namespace {

using testing::expect_error;

// The table belongs to the process: every test leaves it empty.
class Failpoints : public ::testing::Test {
 protected:
  Failpoints() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  ~Failpoints() override {
    set_failpoints("");
    ::unsetenv("TRIREME_FAILPOINTS");
  }
};

TEST_F(Failpoints, DoNothingUnlessAsked) {
  failpoint("step");
  set_failpoints("other=throw");
  failpoint("step");
}

TEST_F(Failpoints, FireOnTheirHitAndOnlyThen) {
  set_failpoints("step=throw@3");
  failpoint("step");
  failpoint("step");
  expect_error(3091, [] { failpoint("step"); });
  failpoint("step");
}

TEST_F(Failpoints, CountOnlyTheRankThatTheyName) {
  set_failpoints("step=throw@rank1@2");
  for (int i = 0; i < 5; ++i) failpoint("step", 0);
  failpoint("step");
  failpoint("step", 1);
  expect_error(3091, [] { failpoint("step", 1); });
}

TEST_F(Failpoints, TellThePlaceToSpoilItsResult) {
  set_failpoints("step=spoil@2;step=sleep(1)@every;other=spoil");
  EXPECT_FALSE(failpoint("step"));
  EXPECT_TRUE(failpoint("step"));
  EXPECT_FALSE(failpoint("step"));
}

TEST_F(Failpoints, MayBeSeveralAtOnePlace) {
  set_failpoints("step=sleep(1)@1;;step=throw@2;save=throw");
  failpoint("step");
  expect_error(3091, [] { failpoint("step"); });
  expect_error(3091, [] { failpoint("save"); });
}

TEST_F(Failpoints, CountEveryHitOfEveryThreadOnce) {
  set_failpoints("step=throw@4000");
  std::atomic<int> thrown = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int hit = 0; hit < 1000; ++hit) {
        try {
          failpoint("step");
        } catch (const Error&) {
          ++thrown;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(thrown, 1);
}

TEST_F(Failpoints, SleepAsLongAsTheySay) {
  set_failpoints("step=sleep(30)");
  const auto begin = std::chrono::steady_clock::now();
  failpoint("step");
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(30));
}

TEST_F(Failpoints, EndTheProcessAsTheySay) {
  const auto run = [](const char* table) {
    set_failpoints(table);
    failpoint("step");
  };
  EXPECT_EXIT(run("step=kill"), ::testing::KilledBySignal(SIGKILL), "");
  EXPECT_EXIT(run("step=exit(75)"), ::testing::ExitedWithCode(75), "");
  const auto hang = [&] {
    ::alarm(1);
    run("step=hang");
  };
  EXPECT_EXIT(hang(), ::testing::KilledBySignal(SIGALRM), "");
}

TEST_F(Failpoints, ComeFromTheEnvironment) {
  ::setenv("TRIREME_FAILPOINTS", "step=exit(7)@rank2", 1);
  const auto run = [] {
    failpoint("step", 1);
    failpoint("step", 2);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(7), "");
}

TEST_F(Failpoints, ThatCannotBeReadAreErrorsThatNameThem) {
  for (const char* text :
       {"step", "=throw", "step=", "step=explode", "step=exit", "step=exit()", "step=exit(x)", "step=sleep(-1)",
        "step=throw@0", "step=throw@", "step=throw@rank", "step=throw@rankx", "step=throw@99999999999999999999"}) {
    SCOPED_TRACE(text);
    EXPECT_NE(expect_error(3090, [&] { set_failpoints(text); }).find(std::string("\"") + text + "\""),
              std::string::npos);
  }
}

}  // namespace
}  // namespace trireme
