// A worker's end of the agent's socket, with the test in the agent's place.
#include "comm/agent_link.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>

#include "comm/wire.h"
#include "support/expect_error.h"

namespace trireme::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::expect_error;
using Op = Message::Op;

class AgentLinkTest : public ::testing::Test {
 protected:
  AgentLinkTest() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    agent_ = ends[0];
    link_ = std::make_shared<AgentLink>(ends[1]);
  }
  ~AgentLinkTest() override {
    link_.reset();
    hang_up();
  }
  void hang_up() {
    if (agent_ >= 0) ::close(agent_);
    agent_ = -1;
  }
  Message heard() const { return decode(read_frame(agent_).value()); }
  void say(const Message& message) const { EXPECT_TRUE(write_frame(agent_, encode(message))); }

  int agent_ = -1;
  std::shared_ptr<AgentLink> link_;
};

TEST_F(AgentLinkTest, AsksAndGetsItsOwnAnswers) {
  auto first = std::async(std::launch::async, [&] { return link_->get("a", milliseconds(60'000)); });
  const Message question = heard();
  auto second = std::async(std::launch::async, [&] { return link_->check("b"); });
  const Message other = heard();
  EXPECT_EQ(question.key, "a");
  EXPECT_EQ(other.op, Op::check);
  say({.op = Op::missing, .id = other.id});
  say({.op = Op::value, .value = "A", .id = question.id});
  EXPECT_EQ(first.get(), "A");
  EXPECT_EQ(second.get(), std::nullopt);
}

TEST_F(AgentLinkTest, GivesUpAtTheTimeOutAndIgnoresALateAnswer) {
  EXPECT_EQ(link_->get("a", milliseconds(20)), std::nullopt);
  say({.op = Op::value, .value = "late", .id = heard().id});
  auto next = std::async(std::launch::async, [&] { return link_->get("b", milliseconds(60'000)); });
  say({.op = Op::value, .value = "B", .id = heard().id});
  EXPECT_EQ(next.get(), "B");
  EXPECT_EQ(link_->broken(), std::nullopt);
}

TEST_F(AgentLinkTest, ABreakFreesEveryCallWithItsCause) {
  const auto control = make_agent_control(link_);
  std::promise<RankFailure> told;
  control->listen([&](const RankFailure& failure) { told.set_value(failure); });
  auto waiting = std::async(std::launch::async,
                            [&] { return expect_error(4002, [&] { link_->get("a", milliseconds(60'000)); }); });
  heard();
  say({.op = Op::broken, .failure = {2, 4002, "data/x:7", "bad", "mend"}});
  EXPECT_EQ(waiting.get(), "TR4002: rank 2: data/x:7: bad\n  mend");
  EXPECT_EQ(told.get_future().get().rank, 2);
  expect_error(4002, [&] { link_->set("b", ""); });
}

TEST_F(AgentLinkTest, AnAgentThatDiesIsABreakToo) {
  const auto control = make_agent_control(link_);
  std::promise<RankFailure> told;
  control->listen([&](const RankFailure& failure) { told.set_value(failure); });
  hang_up();
  EXPECT_EQ(told.get_future().get().code, 1111);
  expect_error(1111, [&] { link_->get("a", milliseconds(60'000)); });
  control->report({.rank = 0, .message = "nobody hears this"});  // does not throw
}

TEST_F(AgentLinkTest, AnAgentThatTalksNonsenseIsABreakToo) {
  write_frame(agent_, "no json");
  EXPECT_EQ(link_->wait_for_break().value().code, 1115);
}

TEST_F(AgentLinkTest, ReportsEvenToAnAgentThatDoesNotRead) {
  const std::string large(8 << 20, 'x');  // more than the socket holds
  const auto begin = steady_clock::now();
  link_->report({.rank = 1, .code = 4002, .message = large});
  EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST_F(AgentLinkTest, SaysByeAndKeepsTheSocketFromChildren) {
  link_->set("k", "v");
  EXPECT_EQ(heard().key, "k");
  link_.reset();
  EXPECT_EQ(heard().op, Op::bye);
  EXPECT_EQ(read_frame(agent_), std::nullopt);
}

TEST_F(AgentLinkTest, ChannelsThatHearNothingEnd) {
  auto control = make_agent_control(link_);
  control->listen([](const RankFailure&) { ADD_FAILURE() << "nobody failed"; });
  control.reset();
}

}  // namespace
}  // namespace trireme::comm
