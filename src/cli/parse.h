// Command lines by CLI11, with our errors.
#pragma once
#include <string>
#include <vector>

#include "cli/commands.h"
#include "config/plan.h"

namespace CLI {
class App;
}

namespace trireme::cli {

// --help prints and ends the process with 0; anything that CLI11 does not accept is Error TR2003.
void parse(CLI::App& app, Arguments arguments);

// What a command line says of the plan: the words CONFIG key=value ..., --config, and the files of other tools.
struct PlanArguments {
  std::vector<std::string> words;
  std::string config;
  std::string deepspeed;  // a file; "-": --deepspeed alone, as in DeepSpeed's own programs
  std::string deepspeed_config, fsdp_config, accelerate_config;
};

void add_plan_arguments(CLI::App& app, PlanArguments& arguments);

// The plan of --config, or of the first word, with the files of other tools beside it, overridden by the other words.
// command: as typed, for errors: TR2002 no configuration, TR2015 --deepspeed without a file, or with another than
// --deepspeed_config.
config::Plan load_plan_of(const std::string& command, PlanArguments arguments);

}  // namespace trireme::cli
