#include "cli/parse.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "base/error.h"

namespace trireme::cli {

void parse(CLI::App& app, Arguments arguments) {
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // as CLI11 wants them
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    std::exit(0);
  } catch (const CLI::ParseError& error) {
    throw Error(2003, app.get_name(), error.what(), "`" + app.get_name() + " --help` lists the arguments");
  }
}

}  // namespace trireme::cli
