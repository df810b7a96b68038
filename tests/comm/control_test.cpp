// The control channel of ranks that are threads.
#include "comm/control.h"

#include <gtest/gtest.h>

#include <future>
#include <mutex>

#include "base/error.h"
#include "comm/ranks.h"

namespace trireme::comm {
namespace {

TEST(LocalControl, AFailureReachesEveryOtherRankWithItsMessage) {
  const auto comms = make_local(3);
  const auto controls = make_local_control(3);
  std::promise<RankFailure> heard[3];
  for (int rank = 0; rank < 3; ++rank) {
    controls[rank]->listen([&, rank](const RankFailure& failure) {
      comms[rank]->abort(failure.message);
      heard[rank].set_value(failure);
    });
  }
  std::byte byte{};
  const auto stuck = comms[0]->receive({&byte, 1}, 2);
  controls[1]->report(
      {.rank = 1, .code = 4002, .place = "data/x.jsonl:7", .message = "bad record", .remedy = "fix it"});
  EXPECT_THROW(stuck->wait(), Error);
  for (const int rank : {0, 2}) {
    const RankFailure failure = heard[rank].get_future().get();
    EXPECT_EQ(failure.rank, 1);
    EXPECT_EQ(failure.code, 4002);
    EXPECT_EQ(failure.place, "data/x.jsonl:7");
    EXPECT_EQ(failure.message, "bad record");
    EXPECT_EQ(failure.remedy, "fix it");
  }
}

TEST(LocalControl, TheFirstFailureWinsAndIsToldOnce) {
  auto controls = make_local_control(3);
  std::mutex mutex;
  std::vector<std::string> heard;
  std::promise<void> told;
  controls[1]->report({.rank = 1, .message = "first"});
  controls[2]->report({.rank = 2, .message = "second"});
  controls[0]->listen([&](const RankFailure& failure) {
    const std::lock_guard lock(mutex);
    heard.push_back(failure.message);
    told.set_value();
  });
  told.get_future().wait();
  controls.clear();  // joins the listeners
  EXPECT_EQ(heard, std::vector<std::string>{"first"});
}

TEST(LocalControl, ChannelsThatHearNothingEndInAnyOrder) {
  auto controls = make_local_control(4);
  for (const auto& control : controls) control->listen([](const RankFailure&) { FAIL() << "nobody failed"; });
  controls[2].reset();
  controls[0].reset();
  controls[3].reset();
  controls[1]->report({.rank = 1, .message = "my own"});  // is not told to oneself
}

}  // namespace
}  // namespace trireme::comm
