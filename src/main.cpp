// The table of contents of the `trireme` binary, and the one place where an error is printed.
#include <cstdio>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/commands.h"

namespace {

struct Command {
  const char* name;
  const char* summary;
  int (*run)(trireme::cli::Arguments);  // nullptr: not yet
};

constexpr Command kCommands[] = {
    {"launch", "start the ranks of this machine and watch them", trireme::cli::run_launch},
    {"train", "train a model (one rank; `launch` starts several)", trireme::cli::run_train},
    {"plan", "price and draw a plan before it runs", trireme::cli::run_plan},
    {"generate", "write text with a trained model", trireme::cli::run_generate},
    {"data", "prepare token shards from text; show samples", trireme::cli::run_data},
    {"convert", "Hugging Face folders in and out", trireme::cli::run_convert},
    {"config", "documentation and schema of every key; compare configurations", trireme::cli::run_config},
    {"setup", "write DeepSpeed's and FSDP's configuration files", trireme::cli::run_setup},
    {"bench", "measure this machine, for `plan`", trireme::cli::run_bench},
    {"verify", "check a checkpoint", nullptr},
    {"doctor", "check this machine", nullptr},
    {"top", "watch a run in the terminal", nullptr},
    {"board", "watch runs in the browser", nullptr},
};

void print_usage(std::FILE* out) {
  std::fprintf(out, "usage: trireme COMMAND [arguments]; `trireme COMMAND --help` tells more\n\n");
  for (const Command& command : kCommands) {
    std::fprintf(out, "  %-10s %s%s\n", command.name, command.summary, command.run == nullptr ? " (not yet)" : "");
  }
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    print_usage(stderr);
    return 2;
  }
  const std::string& name = arguments.front();
  if (name == "--help" || name == "-h" || name == "help") {
    print_usage(stdout);
    return 0;
  }
  if (name == "--version") {
    std::printf("trireme %s\n", TRIREME_VERSION);
    return 0;
  }
  for (const Command& command : kCommands) {
    if (name != command.name) continue;
    if (command.run == nullptr) {
      throw trireme::Error(2001, "trireme " + name, "not yet: this command comes with later work",
                           "`trireme --help` lists the commands that exist");
    }
    return command.run(trireme::cli::Arguments(arguments).subspan(1));
  }
  throw trireme::Error(2000, "command line", "unknown command '" + name + "'", "`trireme --help` lists the commands");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const trireme::Error& error) {
    std::fprintf(stderr, "trireme: error %s\n", error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "trireme: error TR1000: %s\n", error.what());
    return 1;
  }
}
