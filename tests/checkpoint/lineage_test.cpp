#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <thread>

#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/lineage.h"
#include "checkpoint/samples.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace trireme::checkpoint::testing {
namespace {

namespace fs = std::filesystem;
using trireme::testing::expect_error;
using trireme::testing::TemporaryFolder;
using Steps = std::vector<std::int64_t>;

TEST(Attempts, HaveNumbersThatGrow) {
  const TemporaryFolder folder;
  EXPECT_EQ(begin_attempt(folder.path() / "new" / "checkpoints", "run", 0), 1);
  for (int attempt = 1; attempt <= 12; ++attempt) EXPECT_EQ(begin_attempt(folder.path(), "run", 0), attempt);
  fs::remove(folder.path() / "attempts" / "3.json");
  EXPECT_EQ(begin_attempt(folder.path(), "run", 0), 13) << "a gap is not filled: what lies above would replace it";
}

TEST(Attempts, ThatStartAtOnceHaveDifferentNumbers) {
  const TemporaryFolder folder;
  std::vector<int> numbers(8, 0);
  std::vector<std::thread> threads;
  for (int& number : numbers) threads.emplace_back([&] { number = begin_attempt(folder.path(), "run", 0); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::set<int>(numbers.begin(), numbers.end()), (std::set<int>{1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(Attempts, GoAboveCheckpointsThatWereCopiedWithoutTheirRecords) {
  const TemporaryFolder folder;
  save_step(folder.path(), 7, 10);
  EXPECT_EQ(begin_attempt(folder.path(), "run", 10), 8);
  EXPECT_EQ(listed_steps(folder.path()), Steps{10});
}

TEST(List, IsNewestFirstInNumericOrder) {
  const TemporaryFolder folder;
  EXPECT_EQ(listed_steps(folder.path() / "nowhere"), Steps{});
  const int attempt = begin_attempt(folder.path(), "run", 0);
  for (const std::int64_t step : {9, 100, 10, 100000000, 99999999}) save_step(folder.path(), attempt, step);
  EXPECT_EQ(listed_steps(folder.path()), (Steps{100000000, 99999999, 100, 10, 9}));
}

TEST(List, TellsWhatItPassesOver) {
  const TemporaryFolder folder;
  const int attempt = begin_attempt(folder.path(), "run", 0);
  for (const std::int64_t step : {10, 20, 30, 40, 50}) save_step(folder.path(), attempt, step);
  fs::remove(folder.path() / "step-00000050" / "manifest.json");
  flip_bit(folder.path() / "step-00000040" / "manifest.json", 5000);
  fs::rename(folder.path() / "step-00000030", folder.path() / "step-00000031");
  fs::create_directories(folder.path() / "step-31");
  fs::create_directories(folder.path() / "step-000000010");
  fs::create_directories(folder.path() / "other");
  std::vector<std::string> rejected;
  Steps steps;
  for (const Candidate& candidate : list(folder.path(), &rejected)) steps.push_back(candidate.step);
  EXPECT_EQ(steps, (Steps{20, 10}));
  ASSERT_EQ(rejected.size(), 2u);
  EXPECT_NE(rejected[0].find("TR5030"), std::string::npos) << rejected[0];
  EXPECT_NE(rejected[1].find("is of step 30"), std::string::npos) << rejected[1];
}

// Attempt 1 saved 10, 20, 30; attempt 2 resumed from 20: 30 is no longer of this run, and is overwritten.
TEST(Lineage, ALaterAttemptReplacesWhatLiesBeyondItsStart) {
  const TemporaryFolder folder;
  const int first = begin_attempt(folder.path(), "run", 0);
  for (const std::int64_t step : {10, 20, 30}) save_step(folder.path(), first, step);
  const int second = begin_attempt(folder.path(), "run", 20);
  std::vector<std::string> rejected;
  list(folder.path(), &rejected);
  EXPECT_EQ(listed_steps(folder.path()), (Steps{20, 10}));
  ASSERT_EQ(rejected.size(), 1u);
  EXPECT_NE(rejected[0].find("attempt 1 was replaced by attempt 2"), std::string::npos) << rejected[0];

  expect_state(save_step(folder.path(), second, 30), 30);
  EXPECT_EQ(Reader(folder.path() / "step-00000030").manifest().attempt, second);
  EXPECT_EQ(names_in(folder.path() / "step-00000030"),
            (std::vector<std::string>{"manifest.json", "state-a2-rank0.safetensors"}));
  expect_error(5010, [&] { save_step(folder.path(), second, 20); });
  EXPECT_EQ(listed_steps(folder.path()), (Steps{30, 20, 10}));
}

// The attempt that was replaced still runs somewhere, and tries to save.
TEST(Lineage, AReplacedAttemptCanNeitherOverwriteNorAdd) {
  const TemporaryFolder folder;
  const int first = begin_attempt(folder.path(), "run", 0);
  save_step(folder.path(), first, 10);
  const int second = begin_attempt(folder.path(), "run", 10);
  save_step(folder.path(), second, 20);
  for (const std::int64_t step : {20, 30}) {
    const std::string text = expect_error(5013, [&] { save_step(folder.path(), first, step); });
    EXPECT_NE(text.find("attempt 2"), std::string::npos) << text;
  }
  EXPECT_EQ(Reader(folder.path() / "step-00000020").manifest().attempt, second);
  EXPECT_EQ(listed_steps(folder.path()), (Steps{20, 10}));
}

// It may also have passed that check before it was replaced, and come back with its manifest now.
TEST(Lineage, AManifestThatALateAttemptStillLinkedIsIgnoredAndTakenAway) {
  const TemporaryFolder folder;
  const int first = begin_attempt(folder.path(), "run", 0);
  save_step(folder.path(), first, 10);
  save_step(folder.path(), first, 20);  // linked just before or just after the next line: the same files
  const int second = begin_attempt(folder.path(), "run", 10);
  EXPECT_EQ(listed_steps(folder.path()), Steps{10});
  expect_state(save_step(folder.path(), second, 20), 20);
  EXPECT_EQ(Reader(list(folder.path()).front().folder).manifest().attempt, second);
}

// While a replaced attempt clears a step folder, the data of the attempt that replaced it stays.
TEST(Lineage, ClearingAStepSparesTheDataOfNewerAttempts) {
  const TemporaryFolder folder;
  const int first = begin_attempt(folder.path(), "run", 0);
  fs::create_directories(folder.path() / "step-00000020");
  for (const char* name : {"state-a1-rank0.safetensors", "state-a2-rank0.safetensors", "manifest.json.tmp-1-1"}) {
    std::ofstream(folder.path() / "step-00000020" / name) << "half";
  }
  save_step(folder.path(), first, 20);
  EXPECT_EQ(names_in(folder.path() / "step-00000020"),
            (std::vector<std::string>{"manifest.json", "state-a1-rank0.safetensors", "state-a2-rank0.safetensors"}));
}

TEST(Lineage, AnAttemptThatStartsAnewReplacesAll) {
  const TemporaryFolder folder;
  const int first = begin_attempt(folder.path(), "run", 0);
  save_step(folder.path(), first, 10);
  begin_attempt(folder.path(), "run", 0);
  EXPECT_EQ(listed_steps(folder.path()), Steps{});
}

// 1 saved 10 20 30 (its record was lost); 2 resumed from 30, saved 40; 3 resumed from 10, saved 15; 4 resumed from 15.
TEST(Lineage, FollowsManyAttempts) {
  const TemporaryFolder folder;
  for (const std::int64_t step : {10, 20, 30}) save_step(folder.path(), 1, step);
  EXPECT_EQ(begin_attempt(folder.path(), "run", 30), 2);
  save_step(folder.path(), 2, 40);
  EXPECT_EQ(listed_steps(folder.path()), (Steps{40, 30, 20, 10}));
  EXPECT_EQ(begin_attempt(folder.path(), "run", 10), 3);
  save_step(folder.path(), 3, 15);
  EXPECT_EQ(listed_steps(folder.path()), (Steps{15, 10}));
  EXPECT_EQ(begin_attempt(folder.path(), "run", 15), 4);
  save_step(folder.path(), 4, 20);
  EXPECT_EQ(listed_steps(folder.path()), (Steps{20, 15, 10}));
}

TEST(Lineage, ADamagedRecordIsToldAndReplacesNothing) {
  const TemporaryFolder folder;
  save_step(folder.path(), begin_attempt(folder.path(), "run", 0), 10);
  begin_attempt(folder.path(), "run", 0);
  flip_bit(folder.path() / "attempts" / "2.json", 600);
  std::vector<std::string> rejected;
  EXPECT_EQ(list(folder.path(), &rejected).size(), 1u);
  ASSERT_EQ(rejected.size(), 1u);
  EXPECT_NE(rejected[0].find("2.json"), std::string::npos);
  EXPECT_EQ(begin_attempt(folder.path(), "run", 10), 3);
}

// A manifest that cannot be read is no checkpoint: the step is saved again over it.
TEST(Lineage, ABrokenManifestIsSavedOver) {
  const TemporaryFolder folder;
  const int attempt = begin_attempt(folder.path(), "run", 0);
  save_step(folder.path(), attempt, 10);
  flip_bit(folder.path() / "step-00000010" / "manifest.json", 900);
  expect_state(save_step(folder.path(), attempt, 10), 10);
}

TEST(Retain, KeepsTheNewestInNumericOrder) {
  const TemporaryFolder folder;
  const int attempt = begin_attempt(folder.path(), "run", 0);
  for (const std::int64_t step : {2, 9, 10, 99, 100, 100000000}) save_step(folder.path(), attempt, step);
  retain(folder.path(), 0, std::nullopt);
  EXPECT_EQ(listed_steps(folder.path()).size(), 6u) << "0 keeps all";
  retain(folder.path(), 3, 9);
  EXPECT_EQ(listed_steps(folder.path()), (Steps{100000000, 100, 99, 9})) << "and the one that the run resumed from";
  retain(folder.path(), 1, std::nullopt);
  EXPECT_EQ(listed_steps(folder.path()), Steps{100000000});
  expect_state(list(folder.path()).front().folder, 100000000);
}

TEST(Retain, ClearsWhatWasReplacedOrNeverFinishedBelowThem) {
  const TemporaryFolder folder;
  const int first = begin_attempt(folder.path(), "run", 0);
  for (const std::int64_t step : {10, 14, 50}) save_step(folder.path(), first, step);
  fs::create_directories(folder.path() / "step-00000012");
  const int second = begin_attempt(folder.path(), "run", 10);
  for (const std::int64_t step : {20, 30}) save_step(folder.path(), second, step);
  save_step(folder.path(), second, 25);
  flip_bit(folder.path() / "step-00000025" / "manifest.json", 3000);
  retain(folder.path(), 2, std::nullopt);
  std::vector<std::string> left;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder.path()))
    left.push_back(entry.path().filename());
  std::sort(left.begin(), left.end());
  EXPECT_EQ(left,
            (std::vector<std::string>{"attempts", "step-00000020", "step-00000025", "step-00000030", "step-00000050"}))
      << "a damaged one stays as evidence, one beyond the newest is not this run's to take yet";
}

TEST(Retain, TakesNothingWhileThereAreFewerThanItKeeps) {
  const TemporaryFolder folder;
  const int first = begin_attempt(folder.path(), "run", 0);
  save_step(folder.path(), first, 10);
  begin_attempt(folder.path(), "run", 0);
  retain(folder.path(), 1, std::nullopt);
  EXPECT_TRUE(fs::exists(folder.path() / "step-00000010")) << "no newer one is there to take its place";
}

}  // namespace
}  // namespace trireme::checkpoint::testing
