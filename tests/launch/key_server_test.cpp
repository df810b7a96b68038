// The keys that the agent serves.
#include "launch/key_server.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"

namespace trireme::launch {
namespace {

using comm::Message;
using Op = Message::Op;

TEST(KeyServer, AnswersAtOnceWhereTheKeyExists) {
  KeyServer keys;
  EXPECT_TRUE(keys.handle(0, {.op = Op::set, .key = "k", .value = std::string("\0v", 2)}).empty());
  const auto replies = keys.handle(1, {.op = Op::get, .key = "k", .id = 7});
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_EQ(replies[0].rank, 1);
  EXPECT_EQ(replies[0].message.op, Op::value);
  EXPECT_EQ(replies[0].message.id, 7);
  EXPECT_EQ(replies[0].message.value, std::string("\0v", 2));
}

TEST(KeyServer, KeepsQuestionsUntilTheKeyIsSet) {
  KeyServer keys;
  EXPECT_TRUE(keys.handle(1, {.op = Op::get, .key = "k", .id = 1}).empty());
  EXPECT_TRUE(keys.handle(2, {.op = Op::get, .key = "k", .id = 1}).empty());
  EXPECT_TRUE(keys.handle(2, {.op = Op::get, .key = "other", .id = 2}).empty());
  const auto replies = keys.handle(0, {.op = Op::set, .key = "k", .value = "v"});
  ASSERT_EQ(replies.size(), 2u);
  EXPECT_EQ(replies[0].rank, 1);
  EXPECT_EQ(replies[1].rank, 2);
  EXPECT_TRUE(keys.handle(0, {.op = Op::set, .key = "k", .value = "w"}).empty());  // answered once
}

TEST(KeyServer, CheckNeverWaits) {
  KeyServer keys;
  EXPECT_EQ(keys.handle(0, {.op = Op::check, .key = "k", .id = 3}).at(0).message.op, Op::missing);
  keys.handle(0, {.op = Op::set, .key = "k", .value = "v"});
  EXPECT_EQ(keys.handle(0, {.op = Op::check, .key = "k", .id = 4}).at(0).message.value, "v");
}

TEST(KeyServer, HasALimit) {
  KeyServer keys;
  const std::string value(std::size_t{16} << 20, 'x');
  testing::expect_error(1115, [&] {
    for (int i = 0; i < 17; ++i) keys.handle(0, {.op = Op::set, .key = "same", .value = value});
  });
}

}  // namespace
}  // namespace trireme::launch
