#include "launch/signal_queue.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cstring>

#include "base/error.h"

namespace trireme::launch {

SignalQueue::SignalQueue() {
  ::signal(SIGCHLD, SIG_DFL);  // a parent that ignored it would have the kernel throw the workers' exit codes away
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGCHLD, SIGTERM, SIGINT, SIGUSR1}) sigaddset(&signals, number);
  ::pthread_sigmask(SIG_BLOCK, &signals, &before_);
  fd_ = ::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd_ >= 0) return;
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  throw Error(1113, "agent", std::string("signalfd: ") + std::strerror(errno));
}

SignalQueue::~SignalQueue() {
  take();  // one that came late must not end the process in place of the job's exit code
  ::close(fd_);
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

std::vector<int> SignalQueue::take() {
  std::vector<int> numbers;
  signalfd_siginfo info;
  while (::read(fd_, &info, sizeof info) == sizeof info) numbers.push_back(static_cast<int>(info.ssi_signo));
  return numbers;
}

std::string signal_name(int number) {
  const char* abbreviation = ::sigabbrev_np(number);
  return abbreviation != nullptr ? std::string("SIG") + abbreviation : "signal " + std::to_string(number);
}

}  // namespace trireme::launch
