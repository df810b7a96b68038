// How a worker process finds its peers: from its environment to a communicator and a control channel.
#pragma once
#include <exception>
#include <memory>
#include <optional>
#include <string>

#include "comm/communicator.h"
#include "comm/control.h"

namespace trireme::comm {

// RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, TRIREME_CONTROL_FD. Nothing set: one rank
// alone. Half of them set, not numbers, rank >= world size, a port that is none (tcp://...): Error TR30xx naming
// variable and value. LOCAL_RANK and LOCAL_WORLD_SIZE may be missing when all ranks are on one node.
struct WorkerEnvironment {
  int rank = 0, world_size = 1, local_rank = 0, local_world_size = 1;
  std::string master_addr;
  int master_port = 0;
  int control_fd = -1;  // -1: no agent of ours
};
WorkerEnvironment read_worker_environment();

// One rank's membership. The channel is wired so that a break aborts the communicator. Destroying it leaves cleanly,
// the channel first.
struct Membership {
  Membership(std::unique_ptr<Communicator> comm, std::unique_ptr<ControlChannel> control);  // wires them
  Membership(Membership&&) noexcept = default;
  Membership& operator=(Membership&&) = delete;
  ~Membership() = default;

  // The failure of another rank that broke the job off, once one is known here.
  std::optional<RankFailure> failure() const;

  // For the one catch of a worker's main: the error with which this rank ends. An error of its own is reported to the
  // other ranks and returned. TR1101 and TR1102 are only consequences: waits up to a second for their cause and returns
  // that ("rank 2: ...", with its code and remedy). Frees every call on comm, so that all threads can end.
  Error fail(const std::exception& error);

  std::unique_ptr<Communicator> comm;

 private:
  struct Heard;
  std::shared_ptr<Heard> heard_;

 public:
  std::unique_ptr<ControlChannel> control;  // below comm and heard_: it ends before what it calls
};

struct JoinOptions {
  int timeout_s = 300;           // for the others to come
  bool same_host_memory = true;  // same_host.h; false: Gloo for all. Should be the same on all ranks
};

// Gloo through the agent's socket as store, or through a TCPStore at MASTER_ADDR:MASTER_PORT (rank 0 serves it, unless
// torchrun does: TORCHELASTIC_USE_AGENT_STORE=True); a world of one needs neither. Takes over the control descriptor,
// so once a process, and has the process ignore SIGPIPE. Ranks of one host share memory where they can; a line of the
// log says which ranks are reached how. Throws TR1110, naming the ranks, when peers do not come within timeout_s; its
// errors are reported to the other ranks.
Membership join(const WorkerEnvironment& environment, const JoinOptions& options = {});

// For a worker that fails before it joins: tells the agent, if there is one, why the process is about to end.
void report_before_join(const WorkerEnvironment& environment, const Error& error) noexcept;

}  // namespace trireme::comm
