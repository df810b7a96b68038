#include "support/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace trireme::testing {

namespace {

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

Process::Process(const std::vector<std::string>& command, const std::map<std::string, std::string>& environment,
                 const std::string& input) {
  std::string pattern = (std::filesystem::temp_directory_path() / "trireme-process-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) std::abort();
  folder_ = pattern;
  std::ofstream(folder_ + "/in", std::ios::binary) << input;
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_ = fork();
  if (pid_ != 0) return;
  for (const auto& [name, value] : environment) {
    if (value.empty()) {
      unsetenv(name.c_str());
    } else {
      setenv(name.c_str(), value.c_str(), 1);
    }
  }
  dup2(open((folder_ + "/in").c_str(), O_RDONLY), 0);
  dup2(open((folder_ + "/out").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), 1);
  dup2(open((folder_ + "/err").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), 2);
  execv(arguments[0], arguments.data());
  _exit(127);
}

Process::~Process() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

ProcessResult Process::wait(std::chrono::seconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  int status = 0;
  while (waitpid(pid_, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > end) {
      ADD_FAILURE() << "process " << pid_ << " still runs after " << limit.count() << " s; it said:\n"
                    << read_text(folder_ + "/out") << read_text(folder_ + "/err");
      kill(pid_, SIGKILL);
      waitpid(pid_, &status, 0);
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  pid_ = -1;
  const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return {code, read_text(folder_ + "/out"), read_text(folder_ + "/err")};
}

void Process::signal(int number) const {
  kill(pid_, number);
}

std::string Process::out_so_far() const {
  return read_text(folder_ + "/out");
}

std::string Process::err_so_far() const {
  return read_text(folder_ + "/err");
}

ProcessResult run(const std::vector<std::string>& command, const std::map<std::string, std::string>& environment,
                  const std::string& input) {
  return Process(command, environment, input).wait();
}

}  // namespace trireme::testing
