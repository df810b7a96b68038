// Jobs of real processes under the agent: how they end, and that nothing of them stays.
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>

#include "launch/job.h"

namespace trireme::launch {
namespace {

using testing::ProcessResult;
using ::testing::Test;

TEST(Agent, ReturnsZeroWhenAllRanksFinish) {
  Job job(3, {"collectives", "11"});
  const ProcessResult result = job.agent().wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  job.expect_nothing_left();
}

TEST(Agent, KillOfOneRankEndsTheJobAndNamesTheRank) {
  Job job(3, {"steps"});
  job.await_steps();
  kill(job.worker(1), SIGKILL);
  const ProcessResult result = job.wait_for_end();
  EXPECT_EQ(result.exit_code, 137);
  EXPECT_TRUE(testing::says(result.err, "rank 1 failed: TR1112: killed by signal 9 (SIGKILL)")) << result.err;
  EXPECT_TRUE(testing::says(result.err, "rank 0 ends: TR1112: rank 1: killed by signal 9")) << result.err;
  EXPECT_TRUE(testing::says(result.err, "rank 2 ends: TR1112: rank 1: killed by signal 9")) << result.err;
  job.expect_nothing_left();
}

TEST(Agent, ExceptionOfOneRankReachesTheOthersWithItsMessage) {
  Job job(3, {"fail", "2"});
  const ProcessResult result = job.agent().wait();
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_TRUE(testing::says(result.err, "rank 2 failed: TR4002: data/x.jsonl:7: record 7 is bad\n  mend it"))
      << result.err;
  for (const std::string rank : {"0", "1"}) {
    EXPECT_TRUE(
        testing::says(result.err, "rank " + rank + " ends: TR4002: rank 2: data/x.jsonl:7: record 7 is bad\n  mend it"))
        << result.err;
  }
  job.expect_nothing_left();
}

TEST(Agent, ARankThatFailsBeforeItJoinsEndsTheJob) {
  Job job(3, {"fail_early", "1"});
  const ProcessResult result = job.agent().wait();
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_TRUE(testing::says(result.err, "rank 1 failed: TR4002")) << result.err;
  EXPECT_FALSE(testing::says(result.err, "TR1110"))
      << result.err;  // the others are told, they need not give up waiting
  job.expect_nothing_left();
}

TEST(Agent, ARankThatIsKilledBeforeItJoinsEndsTheJob) {
  Job job(2, {"steps"}, {{"TRIREME_FAILPOINTS", "comm.join=kill@rank1"}});
  const ProcessResult result = job.agent().wait();
  EXPECT_EQ(result.exit_code, 137);
  EXPECT_TRUE(testing::says(result.err, "rank 1 failed: TR1112: killed by signal 9 (SIGKILL)")) << result.err;
  job.expect_nothing_left();
}

TEST(Agent, AnExitWithoutAWordIsTheJobsExitCode) {
  Job job(2, {"exit_early", "1", "9"});
  const ProcessResult result = job.agent().wait();
  EXPECT_EQ(result.exit_code, 9);
  EXPECT_TRUE(testing::says(result.err, "rank 1 failed: TR1112: exited with code 9 without a word")) << result.err;
  job.expect_nothing_left();
}

TEST(Agent, WorkersThatHangAfterAFailureAreKilled) {
  Job job(3, {"stubborn", "1"});
  const ProcessResult result = job.agent().wait();
  EXPECT_EQ(result.exit_code, 4) << result.err;
  EXPECT_TRUE(testing::says(result.err, "killing the workers of ranks 0")) << result.err;
  job.expect_nothing_left();
}

TEST(Agent, WorkersDieWithTheAgent) {
  Job job(2, {"stubborn", "-1"});
  job.await_steps();
  job.agent().signal(SIGKILL);
  job.expect_nothing_left();
}

TEST(Agent, ProcessesThatWorkersLeaveBehindAreKilled) {
  Job job(2, {"litter", "0"});
  const ProcessResult result = job.agent().wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  job.expect_nothing_left();
}

// What a broken worker may write to the control socket. Each fails that worker, never the agent.
TEST(Agent, SurvivesGarbageOnTheControlSocket) {
  const std::string deep(100'000, '[');
  for (const std::string& text :
       {std::string("raw:\xff\xff\xff\xffoversized"), std::string("no json"), std::string("[1,2]"), deep,
        std::string(R"({"op":"set","key":5,"value":"00"})"), std::string(R"({"op":"set","key":"k","value":"zz"})"),
        std::string(R"({"op":"value","id":1,"value":""})"), std::string(R"({"op":"failure","code":"x"})")}) {
    Job job(1, {"garbage", "0", text});
    const ProcessResult result = job.agent().wait();
    EXPECT_EQ(result.exit_code, 1) << text.substr(0, 50) << "\n" << result.err;
    EXPECT_TRUE(testing::says(result.err, "rank 0 failed: TR1115")) << result.err;
    job.expect_nothing_left();
  }
}

TEST(Agent, HandsStopSignalsOnAndReturns75) {
  for (const int number : {SIGTERM, SIGUSR1}) {
    Job job(2, {"steps"});
    job.await_steps();
    job.agent().signal(number);
    const ProcessResult result = job.agent().wait();
    EXPECT_EQ(result.exit_code, 75) << result.err;
    job.expect_nothing_left();
  }
}

TEST(Agent, SomeRanksStoppedOnPurposeMeansTheJobWas) {
  Job job(3, {"finish", "1", "75"});
  const ProcessResult result = job.agent().wait();
  EXPECT_EQ(result.exit_code, 75) << result.err;
}

TEST(Agent, WaitsForTheRanksThatStillRun) {
  Job job(2, {"finish", "0", "0"});
  const ProcessResult result = job.agent().wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_FALSE(testing::says(result.err, "killing")) << result.err;
}

TEST(Agent, ASecondStopSignalKillsAtOnce) {
  Job job(2, {"stubborn", "-1"}, {{"TEST_GRACE_SECONDS", "1000"}});
  job.await_steps();
  job.agent().signal(SIGTERM);
  ASSERT_TRUE(eventually([&] { return testing::says(job.agent().err_so_far(), "SIGTERM is handed to all workers"); }));
  job.agent().signal(SIGINT);
  const ProcessResult result = job.wait_for_end();
  EXPECT_EQ(result.exit_code, 128 + SIGTERM) << result.err;
  job.expect_nothing_left();
}

TEST(Agent, WorkersThatDoNotStopInTimeAreKilled) {
  Job job(2, {"stubborn", "-1"}, {{"TEST_GRACE_SECONDS", "0.3"}});
  job.await_steps();
  job.agent().signal(SIGTERM);
  const ProcessResult result = job.wait_for_end();
  EXPECT_EQ(result.exit_code, 128 + SIGTERM) << result.err;
  EXPECT_TRUE(testing::says(result.err, "did not end in time")) << result.err;
  job.expect_nothing_left();
}

TEST(Agent, AWorkerThatCannotBeStartedIsOneClearError) {
  Job job(2, {"done"}, {{"TEST_PROGRAM", "/no/such/program"}});
  const ProcessResult result = job.agent().wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(
      testing::says(result.err, "TR1113: rank 0: cannot start the worker: /no/such/program: No such file or directory"))
      << result.err;
}

// deepspeedai/DeepSpeed 4370, 2802, 6859: PYTHONPATH was overwritten, and arguments were lost on the way to the ranks.
TEST(Agent, WorkersHaveTheUsersEnvironmentAndArguments) {
  Job job(2, {"-c", "echo \"$PYTHONPATH|$1|$2\"", "sh", "--text=a 'b' $c", "last"},
          {{"TEST_PROGRAM", "/bin/sh"}, {"PYTHONPATH", "/of/the/user:/and/more"}});
  const ProcessResult result = job.agent().wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::string line = "/of/the/user:/and/more|--text=a 'b' $c|last\n";
  EXPECT_EQ(result.out, line + line);
}

TEST(Agent, TwentyStartsInARow) {
  for (int i = 0; i < 20; ++i) {
    Job job(2, {"done"});
    const ProcessResult result = job.agent().wait();
    ASSERT_EQ(result.exit_code, 0) << "start " << i << "\n" << result.err;
  }
}

TEST(Agent, AWorldOfOneIsWatchedToo) {
  Job job(1, {"fail", "0"});
  const ProcessResult result = job.agent().wait();
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_TRUE(testing::says(result.err, "rank 0 failed: TR4002")) << result.err;
}

}  // namespace
}  // namespace trireme::launch
