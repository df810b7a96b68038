// `trireme launch`: the workers of this machine.
#include <cstdio>
#include <filesystem>

#include "cli/commands.h"
#include "launch/agent.h"
#include "launch/command_line.h"

namespace trireme::cli {

int run_launch(Arguments arguments) {
  const bool asks_help = !arguments.empty() && (arguments.front() == "--help" || arguments.front() == "-h");
  if (asks_help) {
    std::fputs(launch::launch_help().c_str(), stdout);
    return 0;
  }
  launch::LaunchOptions options = launch::parse_command_line(arguments);
  options.program = std::filesystem::read_symlink("/proc/self/exe");
  // Here, before any process starts, so that a mistake in the configuration is one error and not one from each rank.
  const Arguments worker_arguments = Arguments(options.command).subspan(1);
  const bool only_described = check_train(worker_arguments, options.nproc_per_node);
  return only_described ? 0 : launch::run_agent(options);
}

}  // namespace trireme::cli
