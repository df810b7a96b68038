// The real torchrun, where the set-up for tests has unpacked the Python side of torch.
#pragma once
#include <string>
#include <vector>

#include "support/oracle.h"

namespace trireme::testing {

// A command that starts `worker` on two ranks of this machine; empty when there is no torchrun here.
inline std::vector<std::string> torchrun_command(const std::vector<std::string>& worker) {
  if (!oracle_has("torch/distributed/run.py")) return {};
  std::vector<std::string> command = {
      kOraclePython, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "--no-python"};
  command.insert(command.end(), worker.begin(), worker.end());
  return command;
}

constexpr const char* kNoTorchrun =
    "no torchrun here: `scripts/setup.sh --tests` unpacks one where the system's Python is 3.11";

}  // namespace trireme::testing
