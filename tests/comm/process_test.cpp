// Workers that are real processes, started by hand: they meet at MASTER_ADDR:MASTER_PORT, with no agent.
#include <gtest/gtest.h>

#include <csignal>
#include <deque>
#include <fstream>
#include <random>
#include <thread>

#include "comm/free_port.h"
#include "support/process.h"

namespace trireme::comm {
namespace {

using testing::Process;
using testing::ProcessResult;

class Workers {
 public:
  Workers(int world_size, const std::vector<std::string>& behaviour,
          const std::map<std::string, std::string>& more = {}) {
    for (int rank = 0; rank < world_size; ++rank) start(rank, world_size, behaviour, more);
  }
  Process& operator[](int rank) { return processes_[rank]; }

  void await_steps() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (const Process& process : processes_) {
      while (process.out_so_far().empty()) {
        ASSERT_LT(std::chrono::steady_clock::now(), end) << "the ranks did not get going";
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    }
  }

  std::vector<ProcessResult> wait(std::chrono::seconds limit = std::chrono::seconds(60)) {
    std::vector<ProcessResult> results;
    for (Process& process : processes_) results.push_back(process.wait(limit));
    return results;
  }

 private:
  void start(int rank, int world_size, const std::vector<std::string>& behaviour,
             const std::map<std::string, std::string>& more) {
    std::map<std::string, std::string> environment = {{"RANK", std::to_string(rank)},
                                                      {"LOCAL_RANK", std::to_string(rank)},
                                                      {"WORLD_SIZE", std::to_string(world_size)},
                                                      {"LOCAL_WORLD_SIZE", ""},
                                                      {"MASTER_ADDR", "127.0.0.1"},
                                                      {"MASTER_PORT", std::to_string(port_)},
                                                      {"TRIREME_CONTROL_FD", ""}};
    for (const auto& [name, value] : more) environment[name] = value;
    std::vector<std::string> command = {TRIREME_TEST_WORKER};
    command.insert(command.end(), behaviour.begin(), behaviour.end());
    processes_.emplace_back(command, environment);
  }

  int port_ = free_port();
  std::deque<Process> processes_;
};

// How ranks reach each other: by shared memory, by Gloo, both (odd ranks are on another host), or as one can that gets
// no memory.
struct Way {
  const char* name;
  std::map<std::string, std::string> environment;
};

void PrintTo(const Way& way, std::ostream* out) {
  *out << way.name;
}

class EveryWay : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(
    Ways, EveryWay,
    ::testing::Values(Way{"SharedMemory", {}}, Way{"Gloo", {{"TEST_GLOO_ONLY", "1"}}},
                      Way{"TwoHosts", {{"TRIREME_FAILPOINTS", "comm.host=spoil@rank1;comm.host=spoil@rank3"}}},
                      Way{"OneWithoutMemory", {{"TRIREME_FAILPOINTS", "comm.share_memory=spoil@rank1"}}}),
    [](const auto& way) { return way.param.name; });

// DESIGN 5: the same bits as one serial loop, whatever the number of ranks.
TEST_P(EveryWay, CollectivesEqualTheSerialSumBitForBit) {
  const std::string seed = std::to_string(std::random_device{}() % 100'000);
  for (int world_size : {2, 3, 4}) {
    const auto results = Workers(world_size, {"collectives", seed}, GetParam().environment).wait();
    for (const ProcessResult& result : results) EXPECT_EQ(result.exit_code, 0) << "seed " << seed << "\n" << result.err;
  }
}

TEST_P(EveryWay, RandomTransfersArriveWhole) {
  const std::string seed = std::to_string(std::random_device{}() % 100'000);
  for (int world_size : {2, 4, 5}) {
    const auto results = Workers(world_size, {"transfers", seed, "20"}, GetParam().environment).wait();
    for (const ProcessResult& result : results) EXPECT_EQ(result.exit_code, 0) << "seed " << seed << "\n" << result.err;
  }
}

// Amid transfers that fill the rings.
TEST_P(EveryWay, AKilledRankFreesTheOthersWithinSeconds) {
  for (int killed : {0, 3}) {
    Workers workers(4, {"transfers", "1"}, GetParam().environment);
    workers.await_steps();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    workers[killed].signal(SIGKILL);
    const auto results = workers.wait(std::chrono::seconds(20));  // two promised; tests share machines
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == killed) continue;
      EXPECT_EQ(results[rank].exit_code, 1);
      EXPECT_TRUE(testing::says(results[rank].err, "TR1101")) << results[rank].err;
    }
  }
}

TEST(Processes, SayWhoIsReachedHow) {
  const auto words = [](const std::map<std::string, std::string>& environment) {
    return Workers(3, {"done"}, environment).wait()[0].err;
  };
  // LibTorch may say more.
  const auto expect = [](const std::string& text, const char* line) {
    EXPECT_TRUE(testing::says(text, std::string(line) + "\n")) << text;
  };
  expect(words({}), "rank 0 reaches all other ranks through shared memory");
  expect(words({{"TEST_GLOO_ONLY", "1"}}), "rank 0 reaches the other ranks through Gloo");
  expect(words({{"TRIREME_FAILPOINTS", "comm.host=spoil@rank1"}}),
         "rank 0 reaches 1 of 2 other ranks through shared memory, the rest through Gloo");
  const std::string without = words({{"TRIREME_FAILPOINTS", "comm.share_memory=spoil"}});
  EXPECT_TRUE(testing::says(without, "rank 0 cannot share memory with rank 1 2, though it is on the same machine"))
      << without;
}

// Shared memory without a name ends with the last process that has it, however that ends.
TEST(Processes, WhatTheyShareHasNoNameToBeLeftBehind) {
  Workers workers(2, {"steps"});
  workers.await_steps();
  for (int rank : {0, 1}) {
    std::ifstream maps("/proc/" + std::to_string(workers[rank].pid()) + "/maps");
    int blocks = 0;
    for (std::string line; std::getline(maps, line);) {
      const bool named =
          testing::says(line, "rw-s") && !testing::says(line, "anon_inode:") && !testing::says(line, "(deleted)");
      EXPECT_FALSE(named) << line;
      blocks += testing::says(line, "/memfd:trireme (deleted)") ? 1 : 0;
    }
    EXPECT_EQ(blocks, 2) << "its own and its peer's";
  }
}

// The other waits for the one that is killed while they hand each other their memory, and hears of it.
TEST(Processes, ARankKilledDuringTheSetUpIsNoHang) {
  const auto results =
      Workers(2, {"steps"}, {{"TRIREME_FAILPOINTS", "comm.share_memory=kill@rank1"}, {"TEST_JOIN_SECONDS", "5"}})
          .wait(std::chrono::seconds(20));
  EXPECT_EQ(results[0].exit_code, 1);
  EXPECT_TRUE(testing::says(results[0].err, "TR1110")) << results[0].err;
}

// Whether the rank that fails serves the store or not.
TEST(Processes, AnExceptionReachesTheOthersThroughStoreKeys) {
  for (int failing : {0, 2}) {
    const auto results = Workers(3, {"fail", std::to_string(failing)}).wait();
    for (int rank = 0; rank < 3; ++rank) {
      const std::string place = rank == failing ? "" : "rank " + std::to_string(failing) + ": ";
      EXPECT_EQ(results[rank].exit_code, 4) << results[rank].err;
      EXPECT_TRUE(testing::says(results[rank].err, "TR4002: " + place + "data/x.jsonl:7: record 7 is bad"))
          << results[rank].err;
    }
  }
}

TEST(Processes, AKilledRankIsALostConnectionWithinSeconds) {
  for (int killed : {0, 1}) {
    Workers workers(3, {"steps"});
    workers.await_steps();
    workers[killed].signal(SIGKILL);
    const auto results = workers.wait(std::chrono::seconds(20));  // two promised; tests share machines
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == killed) continue;
      EXPECT_EQ(results[rank].exit_code, 1);
      EXPECT_TRUE(testing::says(results[rank].err, "TR1101")) << results[rank].err;
    }
  }
}

// Also to those who do not talk to it, but wait for a device that does.
TEST(Processes, AKilledRankOfTheSameHostIsSeenByWhoWaitsForSomethingElse) {
  for (int killed : {0, 2}) {
    Workers workers(3, {"beside"});
    workers.await_steps();
    workers[killed].signal(SIGKILL);
    const auto results = workers.wait(std::chrono::seconds(20));  // a fraction of a second promised
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == killed) continue;
      EXPECT_EQ(results[rank].exit_code, 1);
      const std::string lost = "TR1101: rank " + std::to_string(rank) + ": no connection to rank " +
                               std::to_string(killed) + " any more: its process is gone";
      EXPECT_TRUE(testing::says(results[rank].err, lost)) << results[rank].err;
    }
  }
}

TEST(Processes, AStopRequestOfOneRankStopsAll) {
  Workers workers(2, {"steps"});
  workers.await_steps();
  workers[1].signal(SIGUSR1);
  for (const ProcessResult& result : workers.wait()) EXPECT_EQ(result.exit_code, 75) << result.err;
}

TEST(Processes, ARankThatNeverComesIsNamed) {
  const auto results = Workers(2, {"exit_early", "1", "0"}, {{"TEST_JOIN_SECONDS", "6"}}).wait();
  EXPECT_EQ(results[0].exit_code, 1);
  EXPECT_TRUE(testing::says(results[0].err, "TR1110: rank 0: of 2 ranks these did not come within 6 s: 1"))
      << results[0].err;
}

TEST(Processes, RankZeroThatNeverComesIsOneClearError) {
  const auto results = Workers(2, {"exit_early", "0", "0"}, {{"TEST_JOIN_SECONDS", "6"}}).wait();
  EXPECT_EQ(results[1].exit_code, 1);
  EXPECT_TRUE(testing::says(results[1].err, "TR1110: rank 1: nobody served the store at 127.0.0.1:")) << results[1].err;
}

// A port that is another program's: rank 0 cannot have it, and the others do not wait for ever for its answer.
TEST(Processes, APortThatIsTakenIsAnErrorOnAllRanks) {
  const Listener taken;
  const auto results =
      Workers(2, {"steps"}, {{"TEST_JOIN_SECONDS", "6"}, {"MASTER_PORT", std::to_string(taken.port())}}).wait();
  EXPECT_TRUE(testing::says(results[0].err, "TR1114: rank 0: cannot serve the store")) << results[0].err;
  EXPECT_TRUE(testing::says(results[1].err, "TR1110")) << results[1].err;
  EXPECT_EQ(results[0].exit_code, 1);
  EXPECT_EQ(results[1].exit_code, 1);
}

TEST(Processes, AnOddEnvironmentIsAnErrorBeforeAnythingStarts) {
  const auto results = Workers(2, {"steps"}, {{"MASTER_PORT", "tcp://10.0.0.1:29500"}}).wait();
  for (const ProcessResult& result : results) {
    EXPECT_EQ(result.exit_code, 3);
    EXPECT_TRUE(testing::says(result.err, "MASTER_PORT is \"tcp://10.0.0.1:29500\"")) << result.err;
  }
}

}  // namespace
}  // namespace trireme::comm
