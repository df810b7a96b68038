#include "base/log.h"

#include <gtest/gtest.h>

#include <sstream>
#include <thread>
#include <vector>

#include "base/file.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace trireme {
namespace {

using testing::expect_error;
using testing::TemporaryFolder;

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> all;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) all.push_back(line);
  return all;
}

TEST(Log, TellsPeopleOnStandardError) {
  ::testing::internal::CaptureStderr();
  log::info("reading data");
  log::warn("slow disk");
  log::error("TR2104: run.yaml:1:1: bad");
  log::error("the rank died");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "reading data\ntrireme: warning: slow disk\ntrireme: error TR2104: run.yaml:1:1: bad\n"
            "trireme: error: the rank died\n");
}

TEST(Log, KeepsTheLinesOfRanksThatAreThreadsApart) {
  const TemporaryFolder folder;
  ::testing::internal::CaptureStderr();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&, rank] {
      log::open_rank_log(folder.path() / ("rank-" + std::to_string(rank) + ".log"), rank != 0);
      for (int i = 0; i < 100; ++i) log::info("info of rank " + std::to_string(rank));
      log::warn("warning of rank " + std::to_string(rank));
      log::close_rank_log();
      log::info("after the close");
    });
  }
  for (std::thread& rank : ranks) rank.join();
  const std::string terminal = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(lines(terminal).size(), 100u + 3 + 3) << "info of rank 0, all warnings, and what came after the close";
  EXPECT_EQ(terminal.find("info of rank 1"), std::string::npos) << "quiet ranks tell info to their file only";
  for (int rank = 0; rank < 3; ++rank) {
    const auto own = lines(read_file(folder.path() / ("rank-" + std::to_string(rank) + ".log")));
    ASSERT_EQ(own.size(), 101u);
    for (const std::string& line : own) {
      EXPECT_NE(line.find("of rank " + std::to_string(rank)), std::string::npos) << line;
    }
  }
}

TEST(Log, AppendsToTheFileOfAnEarlierAttempt) {
  const TemporaryFolder folder;
  ::testing::internal::CaptureStderr();
  for (int attempt = 0; attempt < 2; ++attempt) {
    log::open_rank_log(folder.path() / "logs" / "rank-0.log", true);
    log::info("attempt " + std::to_string(attempt));
    log::close_rank_log();
  }
  ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(lines(read_file(folder.path() / "logs" / "rank-0.log")).size(), 2u);
}

TEST(Log, SaysWhichFileCannotBeOpened) {
  const TemporaryFolder folder;
  write_file_atomic(folder.path() / "file", "");
  const std::string text =
      expect_error(3020, [&] { log::open_rank_log(folder.path() / "file" / "rank-0.log", false); });
  EXPECT_NE(text.find("rank-0.log"), std::string::npos);
}

}  // namespace
}  // namespace trireme
