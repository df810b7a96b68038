// The real torchrun, where the set-up for tests has unpacked the Python side of torch.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace trireme::testing {

// A command that starts `worker` on two ranks of this machine; empty when there is no torchrun here. It is looked for
// and not tried: importing torch costs seconds.
inline std::vector<std::string> torchrun_command(const std::vector<std::string>& worker) {
  const std::filesystem::path oracle = TRIREME_SOURCE_DIR "/.deps/oracle";
  const std::filesystem::path python = oracle / "bin/python";
  if (!std::filesystem::exists(python)) return {};
  bool found = false;
  for (const auto& version : std::filesystem::directory_iterator(oracle / "lib"))
    found = found || std::filesystem::exists(version.path() / "site-packages/torch/distributed/run.py");
  if (!found) return {};
  std::vector<std::string> command = {python, "-m",         "torch.distributed.run", "--standalone", "--nproc_per_node",
                                      "2",    "--no-python"};
  command.insert(command.end(), worker.begin(), worker.end());
  return command;
}

constexpr const char* kNoTorchrun =
    "no torchrun here: `scripts/setup.sh --tests` unpacks one where the system's Python is 3.11";

}  // namespace trireme::testing
