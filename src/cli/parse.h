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

// The plan of `file`, or where that is empty of the first word, overridden by the other words (key=value). command: as
// typed, for Error TR2002: no file.
config::Plan load_plan_of(const std::string& command, std::string file, std::vector<std::string> words);

}  // namespace trireme::cli
