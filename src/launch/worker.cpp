#include "launch/worker.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/error.h"

namespace trireme::launch {
namespace {

constexpr std::size_t kReadBytes = std::size_t{64} << 10;
constexpr int kReadsATurn = 64;                             // then it is another worker's turn
constexpr std::size_t kMaxUnsent = std::size_t{256} << 20;  // a worker that asks and never reads

[[noreturn]] void cannot_start(int rank, const std::string& what) {
  throw Error(1113, "rank " + std::to_string(rank), "cannot start the worker: " + what + ": " + std::strerror(errno));
}

// This process's environment with the worker's variables in place of any inherited ones.
std::vector<std::string> worker_environment(const LaunchOptions& options, int rank, int control_fd) {
  const std::string size = std::to_string(options.nproc_per_node), number = std::to_string(rank);
  std::vector<std::pair<std::string, std::string>> own = {
      {"RANK", number},
      {"WORLD_SIZE", size},
      {"LOCAL_RANK", number},
      {"LOCAL_WORLD_SIZE", size},
      {"GROUP_RANK", "0"},
      {"MASTER_ADDR", options.master_addr},
      {"MASTER_PORT", options.master_port > 0 ? std::to_string(options.master_port) : ""},
      {"TRIREME_CONTROL_FD", std::to_string(control_fd)},
  };
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    bool replaced = false;
    for (const auto& [name, value] : own)
      replaced = replaced || (text.starts_with(name) && text.substr(name.size()).starts_with('='));
    if (!replaced) result.emplace_back(text);
  }
  for (const auto& [name, value] : own) {
    if (!value.empty()) result.push_back(std::string(name).append("=").append(value));
  }
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& text : strings) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// Between fork and exec: only what POSIX allows there.
[[noreturn]] void become_worker(const char* program, char** arguments, char** environment, int control_fd, pid_t agent,
                                const sigset_t& signal_mask) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != agent) ::_exit(1);  // it died before the line above
  ::fcntl(control_fd, F_SETFD, 0);
  // Not the agent's terminal: reading it from another process group would stop the worker.
  const int null = ::open("/dev/null", O_RDONLY);
  if (null >= 0) ::dup2(null, STDIN_FILENO);
  if (null > STDERR_FILENO) ::close(null);
  ::pthread_sigmask(SIG_SETMASK, &signal_mask, nullptr);
  ::execve(program, arguments, environment);
  ::_exit(127);
}

}  // namespace

Worker::Worker(const LaunchOptions& options, int rank, const sigset_t& signal_mask) : rank_(rank) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) cannot_start(rank, "socketpair");
  fd_ = ends[0];
  ::fcntl(fd_, F_SETFL, O_NONBLOCK);
  try {
    start(options, ends[1], signal_mask);
  } catch (...) {
    ::close(ends[1]);
    close_socket();
    throw;
  }
  ::close(ends[1]);
}

void Worker::start(const LaunchOptions& options, int worker_fd, const sigset_t& signal_mask) {
  if (::access(options.program.c_str(), X_OK) != 0) cannot_start(rank_, options.program.string());
  std::vector<std::string> arguments = options.command;
  arguments.insert(arguments.begin(), options.program.string());
  std::vector<std::string> environment = worker_environment(options, rank_, worker_fd);
  const std::vector<char*> argument_pointers = pointers(arguments), environment_pointers = pointers(environment);
  const pid_t agent = ::getpid(), child = ::fork();
  if (child < 0) cannot_start(rank_, "fork");
  if (child == 0) {
    become_worker(options.program.c_str(), const_cast<char**>(argument_pointers.data()),
                  const_cast<char**>(environment_pointers.data()), worker_fd, agent, signal_mask);
  }
  ::setpgid(child, child);  // here too, lest a signal to the group comes before the child has made it
  pid_ = child;
}

Worker::~Worker() {
  if (running()) {
    signal_group(SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  close_socket();
}

void Worker::close_socket() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

std::vector<comm::Message> Worker::receive() {
  std::vector<comm::Message> messages;
  std::array<char, kReadBytes> bytes;
  for (int read = 0; fd_ >= 0 && read < kReadsATurn; ++read) {
    const ssize_t count = ::recv(fd_, bytes.data(), bytes.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (count <= 0) {
      close_socket();
      break;
    }
    try {
      reader_.feed(bytes.data(), static_cast<std::size_t>(count));
      while (const auto json = reader_.next()) messages.push_back(comm::decode(*json));
    } catch (const Error&) {
      close_socket();
      throw;
    }
  }
  return messages;
}

void Worker::send(const comm::Message& message) {
  if (fd_ < 0) return;
  unsent_ += comm::frame(comm::encode(message));
  flush();
  if (unsent_.size() > kMaxUnsent) close_socket();
}

void Worker::flush() {
  while (wants_to_write()) {
    const ssize_t count = ::send(fd_, unsent_.data(), unsent_.size(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (count < 0) return unsent_.clear();  // its end is closed; what it still said can be read
    unsent_.erase(0, static_cast<std::size_t>(count));
  }
}

std::optional<int> Worker::reap() {
  if (!running()) return std::nullopt;
  // Looked at before it is reaped: until then no other process can get the number of its group.
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
    return std::nullopt;
  signal_group(SIGKILL);
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  return status;
}

void Worker::signal_group(int number) const {
  if (running()) ::kill(-pid_, number);
}

}  // namespace trireme::launch
