#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "base/file.h"
#include "monitor/lossy_writer.h"
#include "monitor/metrics.h"
#include "support/expect_error.h"
#include "support/small_disk.h"
#include "support/temporary_folder.h"

namespace trireme::monitor {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::SmallDisk;
using testing::TemporaryFolder;

std::vector<json> records(const fs::path& file) {
  std::vector<json> all;
  std::istringstream stream(read_file(file));
  for (std::string line; std::getline(stream, line);) all.push_back(json::parse(line));
  return all;
}

void log_steps(const fs::path& file, std::int64_t resumed, std::int64_t last, double loss) {
  const auto sink = make_jsonl(file, resumed);
  sink->event({{"event", resumed == 0 ? "start" : "resume"}, {"step", resumed}});
  for (std::int64_t step = resumed + 1; step <= last; ++step)
    sink->step({.step = step, .total_steps = 100, .loss = loss});
}

std::vector<std::int64_t> curve(const fs::path& file) {
  std::vector<std::int64_t> steps;
  for (const json& record : records(file)) {
    if (!record.contains("event")) steps.push_back(record.at("step"));
  }
  return steps;
}

TEST(JsonLines, HoldWhatAStepAndAnEventTold) {
  const TemporaryFolder folder;
  {
    const auto sink = make_jsonl(folder.path() / "metrics.jsonl", 0);
    sink->event({{"event", "start"}, {"ranks", 2}});
    sink->step({.step = 1,
                .total_steps = 9,
                .epoch = 0.25,
                .loss = 0.1,
                .learning_rate = 1e-3,
                .gradient_norm = 2,
                .clipped_gradient_norm = 1,
                .skipped = true,
                .skipped_steps = 5,
                .loss_scale = 4096,
                .tokens_per_s = 100.5,
                .step_seconds = 0.5,
                .data_wait_seconds = 0.125,
                .tokens = 1ull << 60,
                .memory_bytes = 77,
                .seconds_left = 4});
  }
  const auto all = records(folder.path() / "metrics.jsonl");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0], (json{{"event", "start"}, {"ranks", 2}}));
  EXPECT_EQ(all[1], (json{{"step", 1},
                          {"total_steps", 9},
                          {"epoch", 0.25},
                          {"loss", 0.1},
                          {"lr", 1e-3},
                          {"grad_norm", 2.0},
                          {"grad_norm_clipped", 1.0},
                          {"skipped", true},
                          {"skipped_steps", 5},
                          {"loss_scale", 4096.0},
                          {"tokens_per_s", 100.5},
                          {"step_seconds", 0.5},
                          {"data_wait_seconds", 0.125},
                          {"tokens", 1ull << 60},
                          {"memory_bytes", 77},
                          {"seconds_left", 4.0}}));
}

TEST(JsonLines, AreWrittenAtOnce) {
  const TemporaryFolder folder;
  const auto sink = make_jsonl(folder.path() / "metrics.jsonl", 0);
  sink->step({.step = 1});
  EXPECT_EQ(curve(folder.path() / "metrics.jsonl"), std::vector<std::int64_t>{1})
      << "a killed run leaves its last step";
}

TEST(JsonLines, StayJsonWhenALossIsNoNumberOrATextNoUtf8) {
  const TemporaryFolder folder;
  const auto sink = make_jsonl(folder.path() / "metrics.jsonl", 0);
  sink->step({.step = 1,
              .loss = std::numeric_limits<double>::quiet_NaN(),
              .gradient_norm = std::numeric_limits<double>::infinity()});
  sink->event({{"event", "error"}, {"message", "\xff\xfe and\na new line"}});
  const auto all = records(folder.path() / "metrics.jsonl");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_TRUE(all[0].at("loss").is_null());
  EXPECT_TRUE(all[0].at("grad_norm").is_null());
}

TEST(JsonLines, HoldOneCurveAfterRestarts) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "metrics.jsonl";
  log_steps(file, 0, 17, 1.0);
  log_steps(file, 10, 14, 2.0);
  log_steps(file, 10, 12, 3.0);
  EXPECT_EQ(curve(file), (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
  int events = 0;
  for (const json& record : records(file)) {
    if (record.contains("event")) {
      ++events;
    } else {
      EXPECT_EQ(record.at("loss"), record.at("step") <= 10 ? 1.0 : 3.0);
    }
  }
  EXPECT_EQ(events, 3) << "events are history and stay";
}

TEST(JsonLines, CutATornLastLineAtAnyByte) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "metrics.jsonl";
  log_steps(file, 0, 3, 1.0);
  const std::string whole = read_file(file);
  const std::size_t second_last = whole.rfind('\n', whole.size() - 2) + 1;
  for (std::size_t size = second_last; size < whole.size(); size += (size + 9 < whole.size() - 2 ? 9 : 1)) {
    write_file_atomic(file, whole.substr(0, size));
    log_steps(file, 2, 3, 1.0);
    EXPECT_EQ(curve(file), (std::vector<std::int64_t>{1, 2, 3})) << "cut at " << size;
  }
}

TEST(JsonLines, DropLinesThatAreNoRecords) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "metrics.jsonl";
  log_steps(file, 0, 2, 1.0);
  const std::string whole = read_file(file);
  write_file_atomic(file, std::string(100, '\0') + "\n" + whole + "[1]\n\n{\"x\":1}\n");
  log_steps(file, 2, 3, 1.0);
  EXPECT_EQ(curve(file), (std::vector<std::int64_t>{1, 2, 3}));
}

TEST(JsonLines, LeaveAFileAloneThatNeedsNoRepair) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "metrics.jsonl";
  log_steps(file, 0, 5, 1.0);
  const auto before = fs::last_write_time(file);
  make_jsonl(file, 5);
  EXPECT_EQ(fs::last_write_time(file), before);
}

TEST(JsonLines, SayWhenTheFileCannotBeOpened) {
  const TemporaryFolder folder;
  testing::expect_error(3021, [&] { make_jsonl(folder.path() / "no" / "folder" / "metrics.jsonl", 0); });
}

TEST(LostLines, NeverStopTheRunAndAreToldOnceAndCounted) {
  ::testing::internal::CaptureStderr();
  {
    const auto sink = make_jsonl("/dev/full", 0);
    for (std::int64_t step = 1; step <= 5; ++step) sink->step({.step = step});
    sink->event({{"event", "stop"}});
  }
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 2) << told;
  EXPECT_NE(told.find("/dev/full: cannot write: No space left on device; lines are lost, the run goes on"),
            std::string::npos);
  EXPECT_NE(told.find("/dev/full: 6 lines were lost"), std::string::npos) << told;
}

TEST(LostLines, AClosedPipeLosesLinesToo) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  const auto previous = std::signal(SIGPIPE, SIG_IGN);
  ::testing::internal::CaptureStderr();
  {
    LossyWriter writer(ends[1], "pipe");
    writer.write("line\n");
    writer.write("line\n");
    EXPECT_EQ(writer.lost(), 2u);
  }
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("2 lines were lost"), std::string::npos);
  std::signal(SIGPIPE, previous);
  ::close(ends[1]);
}

// A disk that fills in the middle of a line: the file keeps whole lines only, and goes on when there is room again.
TEST(LostLines, LeaveWholeLinesInTheFile) {
  const SmallDisk disk(16);
  if (!disk.mounted()) GTEST_SKIP() << "may not mount a file system here";
  const fs::path file = disk.path() / "metrics.jsonl";
  ::testing::internal::CaptureStderr();
  {
    std::ofstream(disk.path() / "ballast") << std::string(8192, 'x');
    const auto sink = make_jsonl(file, 0);
    for (std::int64_t step = 1; step <= 100; ++step) sink->step({.step = step});
    const std::vector<std::int64_t> kept = curve(file);  // parses every line
    ASSERT_GT(kept.size(), 5u);
    ASSERT_LT(kept.size(), 100u);
    fs::remove(disk.path() / "ballast");
    sink->step({.step = 101});
    EXPECT_EQ(curve(file).back(), 101);
    EXPECT_EQ(curve(file).size(), kept.size() + 1);
  }
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("lines were lost"), std::string::npos);
}

// Where the torn part cannot be taken back, the next line begins on a line of its own.
TEST(LostLines, EndATornLineThatCannotBeTakenBack) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
  std::string got;
  ::testing::internal::CaptureStderr();
  {
    LossyWriter writer(ends[1], "pipe");
    writer.write(std::string(1 << 20, 'a') + "\n");  // more than the pipe holds
    std::vector<char> buffer(1 << 21);
    got.assign(buffer.data(), static_cast<std::size_t>(::read(ends[0], buffer.data(), buffer.size())));
    writer.write("next\n");
    got.append(buffer.data(), static_cast<std::size_t>(::read(ends[0], buffer.data(), buffer.size())));
    EXPECT_EQ(writer.lost(), 1u);
  }
  ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(got.ends_with("a\nnext\n"));
  for (const int end : ends) ::close(end);
}

}  // namespace
}  // namespace trireme::monitor
