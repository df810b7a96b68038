// Signals as something to poll: while it lives, the agent's signals are blocked in this thread and read from a
// descriptor.
#pragma once
#include <csignal>
#include <string>
#include <vector>

namespace trireme::launch {

class SignalQueue {
 public:
  SignalQueue();  // SIGCHLD, SIGTERM, SIGINT, SIGUSR1
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;
  ~SignalQueue();

  int fd() const { return fd_; }
  std::vector<int> take();  // those that have come; never blocks
  const sigset_t& mask_before() const { return before_; }

 private:
  int fd_ = -1;
  sigset_t before_;
};

// "SIGKILL"; "signal 35" where it has no name.
std::string signal_name(int number);

}  // namespace trireme::launch
