// Command lines by CLI11, with our errors.
#pragma once
#include "cli/commands.h"

namespace CLI {
class App;
}

namespace trireme::cli {

// --help prints and ends the process with 0; anything that CLI11 does not accept is Error TR2003.
void parse(CLI::App& app, Arguments arguments);

}  // namespace trireme::cli
