// The files of other tools that are read beside a configuration.
#pragma once
#include <initializer_list>
#include <string>
#include <vector>

#include "config/foreign.h"
#include "config/plan.h"

namespace trireme::config {

const Dialect& deepspeed_dialect();   // dialect_deepspeed.cpp: JSON
const Dialect& fsdp_dialect();        // dialect_fsdp.cpp: JSON
const Dialect& accelerate_dialect();  // dialect_accelerate.cpp: YAML

// Takes the keys that name such files (use_deepspeed, deepspeed_config, use_fsdp, fsdp_config) out of a configuration;
// relative paths are relative to its folder. A file named there and another on the command line is Error TR2111.
ToolFiles take_tool_files(YamlNode& root, const std::string& place, ToolFiles given);

// What each file says, in settings of ours. More than one file that decides the strategy is Error TR2111.
std::vector<Translation> read_tool_files(const ToolFiles& files);

// Throws Error TR2111, naming both places, where another source gives a key of `tool` another value.
void check_agreement(const Settings& tool, std::initializer_list<const Settings*> others);

}  // namespace trireme::config
