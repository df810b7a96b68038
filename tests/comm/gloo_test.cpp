// Communicators over Gloo, their ranks as threads of this process that meet at a TCPStore: aborts and lost peers.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <future>

#include "comm/collectives.h"
#include "comm/free_port.h"
#include "comm/store.h"
#include "support/expect_error.h"

namespace trireme::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::expect_error;
using Communicators = std::vector<std::unique_ptr<Communicator>>;

Communicators make_ranks(int world_size) {
  const int port = free_port();
  std::vector<std::future<std::unique_ptr<Communicator>>> joining;
  for (int rank = 0; rank < world_size; ++rank) {
    joining.push_back(std::async(std::launch::async, [=] {
      const WorkerEnvironment environment{
          .rank = rank, .world_size = world_size, .master_addr = "127.0.0.1", .master_port = port};
      const JobStorePtr store = make_tcp_store(environment, milliseconds(60'000));
      return make_gloo(*store, {.rank = rank,
                                .world_size = world_size,
                                .local_address = "127.0.0.1",
                                .connect = milliseconds(60'000),
                                .silence = milliseconds(600'000)});
    }));
  }
  Communicators ranks;
  for (auto& rank : joining) ranks.push_back(rank.get());
  return ranks;
}

TEST(Gloo, TransfersOfAPairMatchInIssueOrder) {
  const Communicators ranks = make_ranks(2);
  std::byte out[3] = {std::byte{1}, std::byte{2}, std::byte{3}}, in[3] = {};
  std::vector<std::unique_ptr<Transfer>> transfers;
  for (int i : {0, 1, 2}) transfers.push_back(ranks[1]->receive({in + i, 1}, 0));
  for (int i : {0, 1, 2}) transfers.push_back(ranks[0]->send({out + i, 1}, 1));
  for (int i : {5, 2, 3, 1, 0, 4}) transfers[i]->wait();
  EXPECT_TRUE(std::equal(in, in + 3, out));
}

// All that an aborted rank waits for is freed, whatever the peer does; a peer that lives fails too, as it must.
TEST(Gloo, AbortFreesAllWaitsOfTheRank) {
  const Communicators ranks = make_ranks(3);
  std::vector<std::byte> small(8), large(64 << 20);
  const auto from_one = ranks[0]->receive(small, 1);
  const auto to_two = ranks[0]->send(large, 2);
  auto waiting = std::async(std::launch::async, [&] {
    const std::string text = expect_error(1102, [&] { from_one->wait(); });
    EXPECT_NE(text.find("rank 2: disk full"), std::string::npos) << text;
    expect_error(1102, [&] { to_two->wait(); });
    return steady_clock::now();
  });
  std::this_thread::sleep_for(milliseconds(50));
  const auto begin = steady_clock::now();
  ranks[0]->abort("rank 2: disk full");
  EXPECT_LT(waiting.get() - begin, std::chrono::seconds(10));  // 200 ms promised
  expect_error(1102, [&] { ranks[0]->send(small, 1); });
  expect_error(1102, [&] { barrier(*ranks[0]); });
  expect_error(1102, [&] { ranks[0]->throw_if_broken(); });
  ranks[0]->abort("again");
}

// A pair that is broken already must not keep an abort from freeing the others.
TEST(Gloo, AbortWorksAfterAPeerIsGone) {
  Communicators ranks = make_ranks(3);
  std::vector<std::byte> bytes(8);
  ranks[1].reset();
  const std::string text = expect_error(1101, [&] { ranks[0]->receive(bytes, 1)->wait(); });
  EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
  EXPECT_EQ(text.find("pair.cc"), std::string::npos) << text;
}

TEST(Gloo, AbortFreesWaitsOnTheLivingWhenOneIsDead) {
  Communicators ranks = make_ranks(3);
  std::vector<std::byte> bytes(8);
  const auto from_two = ranks[0]->receive(bytes, 2);
  ranks[1].reset();
  auto waiting = std::async(std::launch::async, [&] {
    expect_error(1102, [&] { from_two->wait(); });
    return steady_clock::now();
  });
  std::this_thread::sleep_for(milliseconds(100));
  const auto begin = steady_clock::now();
  ranks[0]->abort("rank 1 died");
  EXPECT_LT(waiting.get() - begin, std::chrono::seconds(10));
}

TEST(Gloo, ADroppedTransferBreaksTheCommunicatorNotTheMemory) {
  const Communicators ranks = make_ranks(2);
  {
    std::vector<std::byte> gone(1 << 20);
    ranks[0]->receive(gone, 1).reset();
  }
  std::vector<std::byte> bytes(1 << 20);
  expect_error(1102, [&] { ranks[0]->receive(bytes, 1); });
  expect_error(1101, [&] { ranks[1]->receive(bytes, 0)->wait(); });
}

// Gloo itself never ends a send whose connection breaks while its device thread answers the peer's receive.
TEST(Gloo, AbortFreesASendThatGlooForgot) {
  for (int round = 0; round < 10; ++round) {
    const Communicators ranks = make_ranks(2);
    std::vector<std::byte> bytes(1 << 20);
    auto sending = std::async(std::launch::async, [&] {
      try {
        ranks[1]->send(bytes, 0)->wait();  // may still find room in the socket
      } catch (const Error& error) {
        EXPECT_TRUE(error.code() == 1101 || error.code() == 1102) << error.what();
      }
    });
    std::vector<std::byte> other(1 << 20);
    ranks[0]->receive(other, 1).reset();
    std::this_thread::sleep_for(milliseconds(5));
    ranks[1]->abort("rank 0 is gone");
    EXPECT_EQ(sending.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  }
}

TEST(Gloo, ThirtyJobsInOneProcessLeaveNothing) {
  const auto count = [](const char* folder) {
    return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
  };
  const auto round = [](int i) {
    const Communicators ranks = make_ranks(2);
    if (i % 2 == 0) ranks[i % 4 / 2]->abort("round over");
  };
  round(0);
  const auto descriptors = count("/proc/self/fd"), threads = count("/proc/self/task");
  for (int i = 1; i < 30; ++i) round(i);
  EXPECT_LE(count("/proc/self/fd"), descriptors + 4);
  EXPECT_LE(count("/proc/self/task"), threads + 4);
}

}  // namespace
}  // namespace trireme::comm
