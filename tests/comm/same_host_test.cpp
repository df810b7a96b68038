// Communicators over shared memory, their ranks as threads that have mapped every block twice.
#include "comm/same_host.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>

#include "comm/collectives.h"
#include "comm/random_transfers.h"
#include "comm/ranks.h"
#include "support/expect_error.h"
#include "support/seed.h"

namespace trireme::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::expect_error;
using Bytes = std::vector<std::byte>;

unsigned printed_seed() {
  const unsigned seed = testing::test_seed();
  std::printf("seed %u\n", seed);
  return seed;
}

struct Failpoints {
  explicit Failpoints(const std::string& text) { set_failpoints(text); }
  Failpoints(const Failpoints&) = delete;
  Failpoints& operator=(const Failpoints&) = delete;
  ~Failpoints() { set_failpoints(""); }
};

TEST(SameHost, RandomTransfersArriveWhole) {
  const unsigned seed = printed_seed();
  for (const MakeRanks make : {make_sharing, make_two_hosts}) {
    for (int world_size = 2; world_size <= 5; ++world_size) {
      run_ranks(
          world_size,
          [&](Communicator& comm) {
            std::mt19937_64 random(seed + world_size);
            for (int round = 0; round < 15; ++round) random_round(comm, random);
            barrier(comm);
          },
          make);
    }
  }
}

TEST(SameHost, AnAbortAmidTransfersFreesEveryRank) {
  const unsigned seed = printed_seed();
  for (int trial = 0; trial < 12; ++trial) {
    const Communicators ranks = trial % 2 == 0 ? make_sharing(4) : make_two_hosts(4);
    std::vector<std::future<steady_clock::time_point>> ended;
    for (int rank = 0; rank < 4; ++rank) {
      ended.push_back(std::async(std::launch::async, [&, rank] {
        std::mt19937_64 random(seed + trial);
        try {
          for (;;) random_round(*ranks[rank], random);
        } catch (const Error& error) {
          EXPECT_TRUE(error.code() == 1101 || error.code() == 1102) << error.what();
          ranks[rank]->abort("another rank failed");
        }
        return steady_clock::now();
      }));
    }
    std::this_thread::sleep_for(milliseconds(trial * 5));
    const auto begin = steady_clock::now();
    ranks[trial % 4]->abort("on purpose");
    for (auto& rank : ended) EXPECT_LT(rank.get() - begin, std::chrono::seconds(10));  // 200 ms promised
  }
}

// Rank 0 waits for rank 2 of another host while its own send to rank 1 has not all gone; and rank 2 waits for rank 1.
TEST(SameHost, ASendGoesOnWhileItsRankWaitsForAnotherHost) {
  const Failpoints other_host("comm.host=spoil@rank2@every");
  run_ranks(
      3,
      [](Communicator& comm) {
        Bytes large(4 * ring_capacity(2)), word(1);
        if (comm.rank() == 0) {
          const auto sending = comm.send(large, 1), receiving = comm.receive(word, 2);
          receiving->wait();
          sending->wait();
        } else if (comm.rank() == 1) {
          comm.receive(large, 0)->wait();
          comm.send(word, 2)->wait();
        } else {
          comm.receive(word, 1)->wait();
          comm.send(word, 0)->wait();
        }
      },
      make_sharing);
}

// Rank 1 waits for rank 2, which waits for what rank 0 sends only after another message from rank 2; rank 0 must not
// stop at its send to rank 1 for that.
TEST(SameHost, AReceiveGoesOnWhileItsRankWaitsForAnotherHost) {
  const Failpoints other_host("comm.host=spoil@rank2@every");
  run_ranks(
      3,
      [](Communicator& comm) {
        Bytes large(4 * ring_capacity(2)), word(1), other_word(1);
        if (comm.rank() == 0) {
          const auto sending = comm.send(large, 1);
          comm.receive(word, 2)->wait();
          sending->wait();
          comm.send(word, 2)->wait();
        } else if (comm.rank() == 1) {
          const auto last = comm.receive(word, 2), receiving = comm.receive(large, 0);
          last->wait();
          receiving->wait();
        } else {
          comm.send(word, 0)->wait();
          comm.receive(other_word, 0)->wait();
          comm.send(word, 1)->wait();
        }
      },
      make_sharing);
}

TEST(SameHost, DifferentSizesAreAnErrorAtTheReceiverAndThenAtTheSender) {
  const Communicators ranks = make_sharing(2);
  Bytes four(4), eight(8);
  ranks[0]->send(four, 1)->wait();
  const auto receiving = ranks[1]->receive(eight, 0);
  expect_error(1103, [&] { receiving->wait(); });
  expect_error(1103, [&] { ranks[0]->receive(four, 1)->wait(); });
  expect_error(1103, [&] { ranks[0]->send(four, 1); });
}

TEST(SameHost, WhatAPeerSentBeforeItLeftIsKeptBesideASendItNeverTook) {
  Communicators ranks = make_sharing(2);
  Bytes large(3 * ring_capacity(2)), word(1);
  const auto sending = ranks[0]->send(large, 1), receiving = ranks[0]->receive(word, 1);
  ranks[1]->send(Bytes(1, std::byte(7)), 0)->wait();
  ranks[1].reset();
  expect_error(1101, [&] { sending->wait(); });
  receiving->wait();
  EXPECT_EQ(word[0], std::byte(7));
}

// It may have been done before this rank was.
TEST(SameHost, ARankThatLeavesIsNothingToWhoWaitsForSomethingElse) {
  Communicators ranks = make_sharing(3);
  ranks[1].reset();
  const auto end = steady_clock::now() + milliseconds(300);  // longer than between two looks
  while (steady_clock::now() < end) ranks[0]->throw_if_broken();
  expect_error(1101, [&] { ranks[0]->send(Bytes(1), 1); });
}

TEST(SameHost, ATransferDroppedUnderWayBreaksTheCommunicatorNotTheMemory) {
  const Communicators ranks = make_sharing(2);
  {
    const Bytes gone(3 * ring_capacity(2));
    ranks[0]->send(gone, 1).reset();
  }
  Bytes bytes(3 * ring_capacity(2));
  expect_error(1102, [&] { ranks[0]->send(bytes, 1); });
  expect_error(1101, [&] { ranks[1]->receive(bytes, 0)->wait(); });
}

TEST(SameHost, ASilentPeerIsAnErrorAfterTheLimit) {
  const Communicators ranks = share_memory_of_threads(2, milliseconds(300)).comms;
  Bytes bytes(1);
  const std::string text = expect_error(1101, [&] { ranks[0]->receive(bytes, 1)->wait(); });
  EXPECT_NE(text.find("rank 1 is silent"), std::string::npos) << text;
}

std::int64_t microseconds_of_this_thread() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1'000'000 + usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
}

TEST(SameHost, WaitingTakesNoTimeOfACore) {
  const Communicators ranks = make_sharing(2);
  Bytes word(1);
  const auto receiving = ranks[0]->receive(word, 1);
  auto waiting = std::async(std::launch::async, [&] {
    const std::int64_t begin = microseconds_of_this_thread();
    receiving->wait();
    return microseconds_of_this_thread() - begin;
  });
  std::this_thread::sleep_for(milliseconds(1000));
  ranks[1]->send(Bytes(1), 0)->wait();
  EXPECT_LT(waiting.get(), 50'000) << "microseconds in a wait of a second";
}

TEST(SameHost, RingsOfAHostAreBounded) {
  for (int ranks = 2; ranks <= 64; ++ranks) {
    EXPECT_LE(ring_capacity(ranks) * ranks * (ranks - 1), std::size_t{32} << 20) << ranks;
    EXPECT_GE(ring_capacity(ranks), 8u << 10) << ranks;
  }
  EXPECT_GE(ring_capacity(2), (std::size_t{1} << 20) + 16);  // two chunks of a reduction and their sizes
}

// As where a container has no memory left: the ranks that have it still use it.
TEST(SameHost, ARankWithoutMemoryIsReachedByTheInnerCommunicator) {
  const Failpoints no_memory("comm.share_memory=spoil@rank1@every");
  const Transports all = share_memory_of_threads(3);
  EXPECT_EQ(all.words[0], "rank 0 reaches 1 of 2 other ranks through shared memory, the rest through Local");
  EXPECT_EQ(all.words[1], "rank 1 reaches the other ranks through Local");
  EXPECT_NE(all.notices[0].find("rank 0 cannot share memory with rank 1,"), std::string::npos) << all.notices[0];
  EXPECT_NE(all.notices[1].find("rank 1 cannot share memory with rank 0 2,"), std::string::npos) << all.notices[1];
  std::vector<std::future<void>> running;
  for (int rank = 0; rank < 3; ++rank) {
    running.push_back(std::async(std::launch::async, [&, rank] {
      std::mt19937_64 random(1);
      for (int round = 0; round < 10; ++round) random_round(*all.comms[rank], random);
    }));
  }
  for (auto& rank : running) rank.get();
}

TEST(SameHost, AnotherHostIsNoNotice) {
  const Failpoints other_host("comm.host=spoil@rank1@every");
  const Transports all = share_memory_of_threads(2);
  EXPECT_EQ(all.words[0], "rank 0 reaches the other ranks through Local");
  EXPECT_EQ(all.notices[0], "");
}

TEST(SameHost, WordsOfAnotherNetworkOrOfNobodyAreNoMembers) {
  const MemoryOffer offer(0);
  HostWord apart = offer.word();
  apart.network = "1:2";
  for (const std::string& word : {to_text(apart), std::string("garbage"), std::string()}) {
    const TellRanks nobody = [](const std::string&, const std::vector<int>&) -> std::vector<std::string> {
      throw std::logic_error("nobody to tell");
    };
    Communicators local = make_local(2);
    const Transport transport = share_memory(std::move(local[0]), "Local", MemoryOffer(0),
                                             {to_text(offer.word()), word}, nobody, milliseconds(1000));
    EXPECT_EQ(transport.words, "rank 0 reaches the other ranks through Local");
    EXPECT_EQ(transport.notice.empty(), word != to_text(apart)) << transport.notice;
  }
}

// Whoever connects without the job's nonce, and says nothing sensible, is hung up on.
TEST(SameHost, AStrangerAtTheSocketIsNoPeer) {
  std::vector<MemoryOffer> offers;
  for (int rank : {0, 1}) offers.emplace_back(rank);
  const std::string name = "trireme-" + offers[0].word().socket;
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  for (const std::string& words : {std::string("hello"), std::string(36, 'x'), std::string(5000, '\0')}) {
    const int stranger = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    ASSERT_EQ(::connect(stranger, reinterpret_cast<sockaddr*>(&address), size), 0);
    ASSERT_EQ(::send(stranger, words.data(), words.size(), 0), static_cast<ssize_t>(words.size()));
    ::close(stranger);
  }
  const std::vector<std::pair<int, HostWord>> members = {{0, offers[0].word()}, {1, offers[1].word()}};
  std::vector<std::future<std::size_t>> found;
  for (int rank : {0, 1}) {
    found.push_back(std::async(std::launch::async, [&, rank] {
      SharedBlock own(4096);
      const std::string& nonce = offers[rank].word().nonce;
      std::memcpy(own.bytes().data(), nonce.data(), nonce.size());
      return exchange_blocks(offers[rank], members, &own, milliseconds(20'000)).size();
    }));
  }
  for (auto& rank : found) EXPECT_EQ(rank.get(), 1u);
}

TEST(SameHost, ABlockThatCouldBeCutShortIsRefused) {
  const auto memory = [](std::size_t size) {
    Descriptor fd(::memfd_create("test", MFD_CLOEXEC));
    EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(size)), 0);
    return fd;
  };
  expect_error(1117, [&] { SharedBlock(memory(4096), 4096); });
  expect_error(1117, [&] { SharedBlock(memory(4095), 4096); });
  SharedBlock sealed(4096);
  EXPECT_NE(::ftruncate(sealed.descriptor(), 0), 0);
}

TEST(SameHost, ThirtyJobsInOneProcessLeaveNothing) {
  const auto count = [](const char* folder) {
    return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
  };
  const auto round = [](int i) {
    const Communicators ranks = make_two_hosts(3);
    if (i % 2 == 0) ranks[i % 4 / 2]->abort("round over");
  };
  round(0);
  const auto descriptors = count("/proc/self/fd"), threads = count("/proc/self/task");
  for (int i = 1; i < 30; ++i) round(i);
  EXPECT_LE(count("/proc/self/fd"), descriptors);
  EXPECT_LE(count("/proc/self/task"), threads);
}

}  // namespace
}  // namespace trireme::comm
