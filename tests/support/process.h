// Runs a program and keeps what it said.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

namespace trireme::testing {

struct ProcessResult {
  int exit_code = -1;  // 128 + n for signal n
  std::string out, err;
};

// A program that runs until wait() or destruction (which kills it). Its standard streams go to files that wait() reads.
class Process {
 public:
  // environment: added to this process's; an empty value removes the variable. input: its standard input.
  Process(const std::vector<std::string>& command, const std::map<std::string, std::string>& environment = {},
          const std::string& input = {});
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process();
  pid_t pid() const { return pid_; }
  // Kills it and fails the test when it runs on beyond the limit.
  ProcessResult wait(std::chrono::seconds limit = std::chrono::seconds(300));
  void signal(int number) const;
  std::string out_so_far() const;
  std::string err_so_far() const;

 private:
  pid_t pid_ = -1;
  std::string folder_;
};

ProcessResult run(const std::vector<std::string>& command, const std::map<std::string, std::string>& environment = {},
                  const std::string& input = {});

inline bool says(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

}  // namespace trireme::testing
