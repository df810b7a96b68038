// How a worker process finds its peers: from its environment to a communicator and a control channel.
#pragma once
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "comm/control.h"

namespace trireme::comm {

// RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, TRIREME_CONTROL_FD. Nothing set: one rank
// alone. Half of them set, not numbers, rank >= world size, a port that is none (tcp://...): Error TR30xx naming
// variable and value.
struct WorkerEnvironment {
  int rank = 0, world_size = 1, local_rank = 0, local_world_size = 1;
  std::string master_addr;
  int master_port = 0;
  int control_fd = -1;  // -1: no agent of ours
};
WorkerEnvironment read_worker_environment();

// One rank's membership. Destroying it leaves cleanly. The channel is wired so that a break aborts the communicator.
struct Membership {
  std::unique_ptr<Communicator> comm;
  std::unique_ptr<ControlChannel> control;
};

// Gloo through the agent's socket as store, or through a TCPStore at MASTER_ADDR:MASTER_PORT (rank 0 serves it, unless
// torchrun does: TORCHELASTIC_USE_AGENT_STORE=True); a world of one needs neither. Throws TR1110 when peers do not come
// within timeout_s.
Membership join(const WorkerEnvironment& environment, int timeout_s = 300);

}  // namespace trireme::comm
