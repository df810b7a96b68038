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

config::Plan load_plan_of(const std::string& command, std::string file, std::vector<std::string> words) {
  if (file.empty() && !words.empty() && words.front().find('=') == std::string::npos) {
    file = words.front();
    words.erase(words.begin());
  }
  if (file.empty()) {
    throw Error(2002, "command line", "no configuration file", command + " configs/quickstart.yaml [key=value ...]");
  }
  return config::load_plan(file, words);
}

}  // namespace trireme::cli
