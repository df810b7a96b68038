// The event files against TensorBoard's own reader.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <thread>

#include "base/file.h"
#include "monitor/event_file.h"
#include "monitor/metrics.h"
#include "support/expect_error.h"
#include "support/oracle.h"
#include "support/process.h"
#include "support/seed.h"
#include "support/small_disk.h"
#include "support/temporary_folder.h"

namespace trireme::monitor {
namespace {

namespace fs = std::filesystem;
using testing::Process;
using testing::TemporaryFolder;

constexpr int kNoTensorBoard = 77;
const std::string kSource = TRIREME_SOURCE_DIR;
const char* const kSkipped = "no TensorBoard in .deps/oracle (scripts/setup.sh --tests installs it)";

std::vector<std::string> oracle(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(),
                   {trireme::testing::kOraclePython, "-B", kSource + "/tests/monitor/tensorboard_oracle.py"});
  return arguments;
}

std::vector<fs::path> event_files(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

// One attempt of a run: steps after resumed up to last, an evaluation every third, an epoch's end every fourth. Each
// attempt has other values, so that a mixture of two shows.
struct Attempt {
  Attempt(const fs::path& run, std::int64_t resumed, unsigned seed) : random(seed), step(resumed) {
    fs::create_directories(run);
    sinks.push_back(make_jsonl(run / "metrics.jsonl", resumed));
    sinks.push_back(make_tensorboard(run / "tensorboard", resumed, "name: \"run\"\ntraining:\n  max_steps: 30\n"));
  }

  double value() { return std::exp(std::normal_distribution<double>(0, 8)(random)); }
  void run_to(std::int64_t last) {
    while (step < last) {
      ++step;
      const StepRecord record{.step = step,
                              .total_steps = 30,
                              .epoch = static_cast<double>(step) / 4,
                              .loss = step == 5 ? std::nan("") : value(),
                              .learning_rate = value(),
                              .gradient_norm = value(),
                              .clipped_gradient_norm = value(),
                              .loss_scale = value(),
                              .tokens_per_s = value(),
                              .step_seconds = value(),
                              .data_wait_seconds = value(),
                              .memory_bytes = random()};
      for (const auto& sink : sinks) sink->step(record);
      if (step % 3 == 0) tell({{"event", "eval"}, {"step", step}, {"loss", value()}, {"bits_per_byte", value()}});
      if (step % 4 == 0) tell({{"event", "epoch"}, {"step", step}, {"loss", value()}, {"steps", 4}});
      if (step % 5 == 0) tell({{"event", "save"}, {"step", step}, {"folder", "there"}});
    }
  }
  void tell(const nlohmann::json& event) {
    for (const auto& sink : sinks) sink->event(event);
  }

  std::mt19937_64 random;
  std::int64_t step;
  std::vector<std::unique_ptr<Sink>> sinks;
};

void whole_run(const fs::path& run, unsigned seed) {
  Attempt(run, 0, seed).run_to(30);
}

// Killed by SIGKILL with a part of a record written, some steps after the checkpoint that the next attempt goes on
// from.
void killed_and_resumed_run(const fs::path& run, unsigned seed) {
  std::mt19937 random(seed);
  std::int64_t resumed = 0;
  for (unsigned attempt = 0; attempt < 3; ++attempt) {
    const auto killed_at = resumed + 3 + static_cast<std::int64_t>(random() % 6);
    const std::string record = framed(start_event(0, 99));
    const std::size_t torn = random() % record.size();
    const pid_t child = ::fork();
    if (child == 0) {
      Attempt doomed(run, resumed, seed + attempt);
      doomed.run_to(killed_at);
      std::ofstream(event_files(run / "tensorboard").back(), std::ios::app | std::ios::binary)
          << record.substr(0, torn) << std::flush;
      ::kill(::getpid(), SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    resumed = killed_at - static_cast<std::int64_t>(random() % 3);
  }
  Attempt(run, resumed, seed + 3).run_to(30);
}

TEST(TensorBoard, SeesTheValuesOfTheJsonLinesAlsoAfterKillsAndRestarts) {
  const unsigned seed = testing::test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  const TemporaryFolder folder;
  std::vector<std::string> arguments = {"equal", folder.path() / "whole"};
  whole_run(folder.path() / "whole", seed);
  for (unsigned i = 0; i < 10; ++i) {
    arguments.push_back(folder.path() / ("killed-" + std::to_string(i)));
    killed_and_resumed_run(arguments.back(), seed + 10 * i);
    if (HasFatalFailure()) return;
  }
  // A new run in the same folder (checkpoint.resume=never) leaves nothing of the old one.
  whole_run(folder.path() / "whole", seed + 1000);
  const testing::ProcessResult result = testing::run(oracle(arguments));
  if (result.exit_code == kNoTensorBoard || result.exit_code == 127) GTEST_SKIP() << kSkipped;
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_NE(result.out.find("13 curves"), std::string::npos) << result.out;
}

// Where the records that have a loss end in the file.
std::vector<std::size_t> ends_of_losses(const std::string& bytes) {
  constexpr std::size_t kHead = 12, kTail = 4;
  std::vector<std::size_t> ends;
  for (std::size_t at = 0; at < bytes.size();) {
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data() + at, sizeof length);
    const bool has_loss = bytes.substr(at + kHead, length).find("train/loss") != std::string::npos;
    at += kHead + length + kTail;
    if (has_loss) ends.push_back(at);
  }
  return ends;
}

// A process that reads a folder again and again and says each time how many losses it has.
class Follower {
 public:
  explicit Follower(const fs::path& folder) : process_(oracle({"follow", folder})) {}

  // What a reading found that began after this call; -1 when the process has ended.
  int next() {
    const std::size_t wanted = counts(process_.out_so_far()).size() + 2;
    for (;;) {
      siginfo_t info{};
      const int waited = ::waitid(P_PID, static_cast<id_t>(process_.pid()), &info, WEXITED | WNOHANG | WNOWAIT);
      const std::vector<int> all = counts(process_.out_so_far());
      if (all.size() >= wanted) return all.back();
      if (waited != 0 || info.si_pid != 0) return -1;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  int last() { return counts(process_.wait().out).back(); }
  std::string errors() const { return process_.err_so_far(); }

 private:
  static std::vector<int> counts(const std::string& out) {
    std::istringstream lines(out.substr(0, out.rfind('\n') + 1));
    std::vector<int> all;
    for (std::string line; std::getline(lines, line);) all.push_back(std::stoi(line));
    return all;
  }
  Process process_;
};

// A reader that looks again after each piece of the file, wherever the piece ends, has exactly the losses whose records
// are whole.
TEST(TensorBoard, ReadsAFileThatIsBeingWritten) {
  const unsigned seed = testing::test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const TemporaryFolder folder;
  whole_run(folder.path() / "run", seed);
  const fs::path source = event_files(folder.path() / "run/tensorboard").front();
  const std::string bytes = read_file(source);
  const std::vector<std::size_t> ends = ends_of_losses(bytes);
  ASSERT_EQ(ends.size(), 30u);

  const fs::path growing = folder.path() / "growing";
  fs::create_directories(growing);
  Follower follower(growing);
  if (follower.next() < 0) GTEST_SKIP() << kSkipped;
  std::ofstream out(growing / source.filename(), std::ios::binary);
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t size = std::min<std::size_t>(bytes.size() - at, 1 + random() % 600);
    out << bytes.substr(at, size) << std::flush;
    at += size;
    const auto whole = std::upper_bound(ends.begin(), ends.end(), at) - ends.begin();
    ASSERT_EQ(follower.next(), whole) << "after " << at << " bytes; " << follower.errors();
  }
  std::ofstream(growing / "done") << "";
  EXPECT_EQ(follower.last(), 30);
}

// A disk that fills in the middle of a record: the file keeps whole records only, and goes on when there is room again.
TEST(TensorBoard, LostRecordsLeaveWholeOnesInTheFile) {
  const testing::SmallDisk disk(32);
  if (!disk.mounted()) GTEST_SKIP() << "may not mount a file system here";
  ::testing::internal::CaptureStderr();
  {
    std::ofstream(disk.path() / "ballast") << std::string(8192, 'x');
    const auto sink = make_tensorboard(disk.path() / "tensorboard", 0, "plan");
    const fs::path file = event_files(disk.path() / "tensorboard").front();
    for (std::int64_t step = 1; step <= 200; ++step) sink->step({.step = step});
    const std::vector<std::size_t> kept = ends_of_losses(read_file(file));
    ASSERT_GT(kept.size(), 5u);
    ASSERT_LT(kept.size(), 200u);
    EXPECT_EQ(kept.back(), fs::file_size(file));
    fs::remove(disk.path() / "ballast");
    sink->step({.step = 201});
    EXPECT_EQ(ends_of_losses(read_file(file)).size(), kept.size() + 1);
  }
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("were lost"), std::string::npos);
}

TEST(TensorBoard, ANewFileComesLastWhateverTheClock) {
  const TemporaryFolder folder;
  const fs::path future = folder.path() / "events.out.tfevents.8999999999.elsewhere.1";
  std::ofstream(future) << "";
  std::ofstream(folder.path() / "events.out.tfevents.99999") << "";
  std::ofstream(folder.path() / "events.out.tfevents.x999999999.y") << "";
  for (int i = 0; i < 3; ++i) make_tensorboard(folder.path(), 0, "plan");
  const std::vector<fs::path> files = event_files(folder.path());
  std::vector<std::string> ours;
  for (const fs::path& file : files) {
    if (fs::file_size(file) > 0) ours.push_back(file.filename());
  }
  ASSERT_EQ(ours.size(), 3u);
  EXPECT_TRUE(ours[0].starts_with("events.out.tfevents.9000000000.")) << ours[0];
  EXPECT_TRUE(ours[2].starts_with("events.out.tfevents.9000000002.")) << ours[2];
}

TEST(TensorBoard, AFolderThatCannotBeIsAnError) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "tensorboard") << "a file";
  testing::expect_error(3021, [&] { make_tensorboard(folder.path() / "tensorboard", 0, "plan"); });
}

}  // namespace
}  // namespace trireme::monitor
