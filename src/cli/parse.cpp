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

void add_plan_arguments(CLI::App& app, PlanArguments& arguments) {
  app.add_option("CONFIG", arguments.words, "configuration file, then key=value overrides (training.max_steps=10)");
  app.add_option("--config", arguments.config, "configuration file");
  app.add_option("--deepspeed", arguments.deepspeed, "DeepSpeed's JSON file, which the plan follows too")
      ->expected(0, 1)
      ->default_str("-");
  app.add_option("--deepspeed_config,--deepspeed-config", arguments.deepspeed_config, "the same");
  app.add_option("--fsdp_config,--fsdp-config", arguments.fsdp_config, "FSDP's options as a JSON file");
  app.add_option("--config_file,--config-file", arguments.accelerate_config, "accelerate's YAML file");
}

namespace {

// --deepspeed is a bare flag in DeepSpeed's own programs: what follows it may be the configuration or an override.
config::ToolFiles tool_files_of(PlanArguments& arguments) {
  config::ToolFiles files{.deepspeed = arguments.deepspeed_config,
                          .fsdp = arguments.fsdp_config,
                          .accelerate = arguments.accelerate_config};
  const bool is_asked_for = !arguments.deepspeed.empty();
  std::string file = arguments.deepspeed == "-" ? "" : arguments.deepspeed;
  const bool is_word = file.find('=') != std::string::npos;
  const bool is_config = !is_word && !file.empty() && !files.deepspeed.empty() && arguments.config.empty() &&
                         (arguments.words.empty() || arguments.words.front().find('=') != std::string::npos);
  if (is_word || is_config) {
    arguments.words.insert(is_word ? arguments.words.end() : arguments.words.begin(), file);
    file.clear();
  }
  if (!file.empty() && !files.deepspeed.empty() && file != files.deepspeed) {
    throw Error(2015, "command line: --deepspeed",
                "names " + file + ", but --deepspeed_config " + files.deepspeed.string(), "name the file once");
  }
  if (!file.empty()) files.deepspeed = file;
  if (is_asked_for && files.deepspeed.empty()) {
    throw Error(2015, "command line: --deepspeed", "names no file",
                "write --deepspeed FILE, or --deepspeed_config FILE");
  }
  return files;
}

}  // namespace

config::Plan load_plan_of(const std::string& command, PlanArguments arguments) {
  const config::ToolFiles files = tool_files_of(arguments);
  std::vector<std::string>& words = arguments.words;
  std::string file = arguments.config;
  if (file.empty() && !words.empty() && words.front().find('=') == std::string::npos) {
    file = words.front();
    words.erase(words.begin());
  }
  if (file.empty()) {
    throw Error(2002, "command line", "no configuration file", command + " configs/quickstart.yaml [key=value ...]");
  }
  return config::load_plan(file, words, files);
}

}  // namespace trireme::cli
