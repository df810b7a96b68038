// Communicators whose ranks are threads: matching, aborts, departures, destruction in any order.
#include <gtest/gtest.h>

#include <chrono>
#include <string_view>

#include "base/error.h"
#include "comm/collectives.h"
#include "comm/ranks.h"

namespace trireme::comm {
namespace {

using Bytes = std::vector<std::byte>;

std::string receive_text(Communicator& comm, std::size_t size, int from) {
  std::string text(size, '?');
  comm.receive(std::as_writable_bytes(std::span(text)), from)->wait();
  return text;
}

std::unique_ptr<Transfer> send_text(Communicator& comm, std::string_view text, int to) {
  return comm.send(std::as_bytes(std::span(text)), to);
}

// The code of the error that the call throws; 0 if it throws none.
template <class Call>
int error_code(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return 0;
}

class RanksAsThreads : public ::testing::TestWithParam<Backend> {};

INSTANTIATE_TEST_SUITE_P(Backends, RanksAsThreads, ::testing::ValuesIn(kBackends),
                         [](const auto& backend) { return backend.param.name; });

TEST_P(RanksAsThreads, TransfersOfAPairMatchInIssueOrder) {
  run_ranks(
      2,
      [](Communicator& comm) {
        if (comm.rank() == 0) {
          const auto first = send_text(comm, "one", 1), second = send_text(comm, "two", 1);
          second->wait();
          first->wait();
        } else {
          EXPECT_EQ(receive_text(comm, 3, 0), "one");
          EXPECT_EQ(receive_text(comm, 3, 0), "two");
        }
      },
      GetParam().make);
}

TEST_P(RanksAsThreads, WaitingTwiceIsHarmless) {
  run_ranks(
      2,
      [](Communicator& comm) {
        std::byte byte{};
        const auto transfer = comm.rank() == 0 ? comm.send({&byte, 1}, 1) : comm.receive({&byte, 1}, 0);
        transfer->wait();
        transfer->wait();
      },
      GetParam().make);
}

TEST(Local, DifferentSizesAreAnErrorOnBothEnds) {
  run_ranks(2, [](Communicator& comm) {
    Bytes bytes(comm.rank() == 0 ? 4 : 8);
    const auto transfer = comm.rank() == 0 ? comm.send(bytes, 1) : comm.receive(bytes, 0);
    EXPECT_EQ(error_code([&] { transfer->wait(); }), 1103);
  });
}

TEST_P(RanksAsThreads, AbortFreesAWaitingRankAndStaysInForce) {
  auto ranks = GetParam().make(3);
  std::thread waiting([&] {
    Bytes bytes(16);
    const auto transfer = ranks[1]->receive(bytes, 0);
    try {
      transfer->wait();
      ADD_FAILURE() << "nobody sent";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), 1102);
      EXPECT_NE(std::string(error.what()).find("disk full on rank 2"), std::string::npos) << error.what();
    }
    EXPECT_EQ(error_code([&] { ranks[1]->send(bytes, 2); }), 1102);
    EXPECT_EQ(error_code([&] { barrier(*ranks[1]); }), 1102);
    EXPECT_EQ(error_code([&] { ranks[1]->throw_if_broken(); }), 1102);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  for (const auto& rank : ranks) rank->throw_if_broken();
  ranks[1]->abort("disk full on rank 2");
  ranks[1]->abort("a later reason");
  waiting.join();
}

TEST_P(RanksAsThreads, ARankThatLeftIsAnErrorForThoseWhoNeedIt) {
  auto ranks = GetParam().make(3);
  Bytes bytes(4);
  const auto pending = ranks[0]->receive(bytes, 1);
  ranks[1].reset();
  EXPECT_EQ(error_code([&] { pending->wait(); }), 1101);
  EXPECT_EQ(error_code([&] { ranks[2]->send(bytes, 1); }), 1101);
  const auto sent = ranks[2]->send(bytes, 0);  // the others still reach each other
  ranks[0]->receive(bytes, 2)->wait();
  sent->wait();
}

TEST_P(RanksAsThreads, WhatWasReceivedBeforeTheSenderLeftIsKept) {
  auto ranks = GetParam().make(2);
  std::string text(2, '?');
  const auto received = ranks[1]->receive(std::as_writable_bytes(std::span(text)), 0);
  send_text(*ranks[0], "ok", 1)->wait();
  ranks[0].reset();
  received->wait();
  EXPECT_EQ(text, "ok");
}

TEST(Local, ADroppedTransferClosesThePairInsteadOfShiftingTheMatch) {
  auto ranks = make_local(2);
  Bytes bytes(4);
  ranks[0]->send(bytes, 1).reset();
  EXPECT_EQ(error_code([&] { ranks[1]->receive(bytes, 0)->wait(); }), 1101);
}

TEST_P(RanksAsThreads, CommunicatorsDieInAnyOrderWhileOthersAbort) {
  for (int round = 0; round < 50; ++round) {
    auto ranks = GetParam().make(4);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 4; ++rank) {
      threads.emplace_back([&, rank] {
        Bytes mine(64), all(256);
        error_code([&] {
          for (int i = 0; i < 1 + (round + rank) % 4; ++i) all_gather(*ranks[rank], mine, all);
        });
        if (rank == round % 4) ranks[rank]->abort("round over");
        ranks[rank].reset();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(Local, AWorldOfOneNeedsNoPeers) {
  const auto comm = make_single();
  EXPECT_EQ(comm->world_size(), 1);
  barrier(*comm);
  std::vector<float> slot{1, 2, 3}, sum{10, 10, 10};
  ordered_reduce_scatter(*comm, slot.data(), {}, sum.data(), 3, 1, false);
  EXPECT_EQ(sum, (std::vector<float>{11, 12, 13}));
  EXPECT_THROW(send_text(*comm, "x", 0), Error);
}

}  // namespace
}  // namespace trireme::comm
