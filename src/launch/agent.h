// `trireme launch`: starts this node's workers, watches them, ends all when one fails.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace trireme::launch {

struct LaunchOptions {
  int nproc_per_node = 1;            // "auto" resolved by the command line
  std::vector<std::string> command;  // arguments of `trireme` in each worker: {"train", "configs/quickstart.yaml", ...}
  std::filesystem::path program;     // the worker's program; `trireme launch` starts itself
  std::string master_addr = "127.0.0.1";
  int master_port = 0;        // 0: the agent picks none; workers use its socket
  double grace_seconds = 30;  // after SIGTERM or SIGINT before SIGKILL: the time to save
};

// Each worker: own process group, dies with the agent (PDEATHSIG), inherits a socket (TRIREME_CONTROL_FD) that serves
// as store and control channel. First failure: its rank and error are printed, the others get BREAK, then SIGTERM, then
// SIGKILL by group, all within two seconds; nothing of their groups stays behind. SIGTERM, SIGINT and SIGUSR1 to the
// agent are handed to all workers, once each; a second SIGTERM or SIGINT kills at once. Returns the job's exit code:
// the failing rank's, 128 + n for a signal, 75 when stopped on purpose, 0. To be called by a thread that lives on,
// while the process has no other (signals are blocked in this thread only). Throws Error TR1113 when a worker cannot be
// started, after ending those that were.
int run_agent(const LaunchOptions& options);

}  // namespace trireme::launch
