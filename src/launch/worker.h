// One worker process, as the agent sees it: started, spoken with over a socket, ended with its whole process group.
#pragma once
#include <sys/types.h>

#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "comm/message.h"
#include "comm/wire.h"
#include "launch/agent.h"

namespace trireme::launch {

class Worker {
 public:
  // signal_mask: what the worker's signal mask shall be. Throws Error TR1113 when it cannot be started.
  Worker(const LaunchOptions& options, int rank, const sigset_t& signal_mask);
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker();  // kills what is left of the group

  int rank() const { return rank_; }

  // The socket; -1 once its other end is closed.
  int fd() const { return fd_; }
  bool wants_to_write() const { return fd_ >= 0 && !unsent_.empty(); }
  // What has arrived. Throws Error TR1115 for anything that is no frame; the socket is closed then.
  std::vector<comm::Message> receive();
  void send(const comm::Message& message);  // queued where the socket is full; dropped where it is closed
  void flush();

  // Looks whether the process has ended; if so kills the rest of its group and reaps it. The wait status, once.
  std::optional<int> reap();
  bool running() const { return pid_ > 0; }
  void signal_group(int number) const;

 private:
  void start(const LaunchOptions& options, int worker_fd, const sigset_t& signal_mask);
  void close_socket();

  int rank_;
  pid_t pid_ = -1;
  int fd_ = -1;
  comm::FrameReader reader_;
  std::string unsent_;
};

}  // namespace trireme::launch
