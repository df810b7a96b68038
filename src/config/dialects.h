// The tables of other tools, and what of a configuration and beside it they read.
#pragma once
#include <string>
#include <vector>

#include "config/foreign.h"
#include "config/plan.h"

namespace trireme::config {

const Dialect& deepspeed_dialect();   // dialect_deepspeed.cpp: JSON
const Dialect& fsdp_dialect();        // dialect_fsdp.cpp: JSON; keys of a configuration that begin with fsdp_
const Dialect& accelerate_dialect();  // dialect_accelerate.cpp: YAML

// What the foreign keys of the configuration and of the command line say, and the files that they name or that are
// given. A path in the configuration is relative to its folder. Errors TR2104: a tool that is switched on without its
// file; TR2111: two tools at once, or two files of one.
std::vector<Translation> read_tools(const Settings& configuration, const Settings& command_line,
                                    const std::string& place, ToolFiles given);

}  // namespace trireme::config
