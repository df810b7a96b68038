// A job started by the test agent, and what is left of its processes. Each job carries a mark in its environment, so
// that every process of it can be found, whoever its parent is.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "support/process.h"

namespace trireme::launch {

inline std::string fresh_mark() {
  static int count = 0;
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  return std::to_string(getpid()) + "-" + std::to_string(++count) + "-" + std::to_string(now);
}

// Processes that have all of these entries in their environment; those that have ended have none.
inline std::vector<pid_t> processes_with(const std::vector<std::string>& entries) {
  std::vector<pid_t> found;
  for (const auto& folder : std::filesystem::directory_iterator("/proc")) {
    const std::string name = folder.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(folder.path() / "environ", std::ios::binary);
    const std::string environment = '\0' + std::string(std::istreambuf_iterator<char>(file), {}) + '\0';
    const bool all = std::all_of(entries.begin(), entries.end(), [&](const std::string& entry) {
      return environment.find('\0' + entry + '\0') != std::string::npos;
    });
    if (all) found.push_back(std::stoi(name));
  }
  return found;
}

// True once condition holds; gives up after the limit.
template <class Condition>
bool eventually(Condition condition, std::chrono::seconds limit = std::chrono::seconds(60)) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

class Job {
 public:
  Job(int num_ranks, const std::vector<std::string>& behaviour, std::map<std::string, std::string> environment = {})
      : num_ranks_(num_ranks), agent_(command(num_ranks, behaviour), marked(environment, mark_)) {}

  testing::Process& agent() { return agent_; }
  pid_t worker(int rank) const {
    const auto found = processes_with({"TRIREME_TEST_JOB=" + mark_, "RANK=" + std::to_string(rank)});
    return found.size() == 1 ? found[0] : -1;
  }

  // All ranks have joined and said a line.
  void await_steps() {
    ASSERT_TRUE(eventually([&] {
      const std::string out = agent_.out_so_far();
      return std::count(out.begin(), out.end(), '\n') >= num_ranks_;
    })) << "the ranks did not get going";
  }

  // Within what a failed job may take: two seconds promised, ten times that asserted, for tests share machines.
  testing::ProcessResult wait_for_end() { return agent_.wait(std::chrono::seconds(20)); }

  void expect_nothing_left() const {
    EXPECT_TRUE(
        eventually([&] { return processes_with({"TRIREME_TEST_JOB=" + mark_}).empty(); }, std::chrono::seconds(20)))
        << processes_with({"TRIREME_TEST_JOB=" + mark_}).size() << " processes of the job are left";
  }

 private:
  static std::vector<std::string> command(int num_ranks, const std::vector<std::string>& behaviour) {
    std::vector<std::string> words = {TRIREME_TEST_AGENT, std::to_string(num_ranks)};
    words.insert(words.end(), behaviour.begin(), behaviour.end());
    return words;
  }
  static std::map<std::string, std::string> marked(std::map<std::string, std::string> environment,
                                                   const std::string& mark) {
    environment["TRIREME_TEST_JOB"] = mark;
    return environment;
  }

  int num_ranks_;
  std::string mark_ = fresh_mark();
  testing::Process agent_;
};

}  // namespace trireme::launch
