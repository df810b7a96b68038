// The arguments of `trireme launch`: torchrun's names, for one node.
#pragma once
#include <span>
#include <string>

#include "launch/agent.h"

namespace trireme::launch {

// Options, then the worker's command and its arguments, which are passed on untouched. Options of torchrun that mean
// nothing on one node are accepted with a notice; what is not there yet, and anything unknown, is Error TR2004..2006.
// program is left empty.
LaunchOptions parse_command_line(std::span<const std::string> arguments);

// The number of workers that N, "auto", "cpu" or "gpu" means here: auto is one a GPU if there are any, else as cpu: one
// a CPU core that this process may use. Throws Error TR2005, or TR3053 for "gpu" where there is none.
int resolve_nproc(const std::string& text);

std::string launch_help();

}  // namespace trireme::launch
