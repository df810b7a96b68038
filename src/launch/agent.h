// `trireme launch`: starts this node's workers, watches them, ends all when one fails.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace trireme::launch {

struct LaunchOptions {
  int nproc_per_node = 1;            // "auto" resolved by the command line
  std::vector<std::string> command;  // arguments of `trireme` in each worker: {"train", "configs/quickstart.yaml", ...}
  std::filesystem::path program;     // /proc/self/exe
  std::string master_addr = "127.0.0.1";
  int master_port = 0;        // 0: the agent picks none; workers use its socket
  double grace_seconds = 10;  // after a stop signal before SIGKILL
};

// Each worker: own process group, dies with the agent (PDEATHSIG), inherits a socket (TRIREME_CONTROL_FD) that serves
// as store and control channel. First failure: its rank and error are printed, the others get BREAK, then SIGTERM, then
// SIGKILL by group; nothing stays behind. SIGTERM, SIGINT and SIGUSR1 to the agent are handed to all workers. Returns
// the job's exit code: the failing rank's, 128 + n for a signal, 75 when stopped on purpose, 0.
int run_agent(const LaunchOptions& options);

}  // namespace trireme::launch
