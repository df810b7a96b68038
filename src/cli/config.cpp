// `trireme config`: what a configuration may say, and what two of them say.
#include <algorithm>
#include <string>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "config/diff.h"
#include "config/document.h"
#include "config/explain_file.h"
#include "config/json_schema.h"
#include "config/plan.h"

namespace trireme::cli {
namespace {

int print_docs(Arguments) {
  print(config::schema_as_markdown());
  return 0;
}

int print_schema(Arguments) {
  print(config::schema_as_json());
  return 0;
}

// 1 where they differ, as diff(1).
int print_differences(Arguments files) {
  const config::Plan a = config::load_plan(files[0], {}), b = config::load_plan(files[1], {});
  const std::vector<config::Difference> found = config::differences(a, b);
  print(config::to_text(found, files[0], files[1]));
  return found.empty() ? 0 : 1;
}

int print_explanation(Arguments files) {
  print(config::explain_file(config::read_configuration(files[0]), files[0]));
  return 0;
}

struct Action {
  const char* name;
  std::size_t num_arguments;
  const char* arguments;
  const char* help;
  int (*run)(Arguments);
};

constexpr Action kActions[] = {
    {"docs", 0, "", "print every key of a configuration with its type, default and meaning, as Markdown", print_docs},
    {"schema", 0, "", "print a JSON Schema of configurations, with which editors complete and check them",
     print_schema},
    {"explain", 1, " FILE",
     "print key by key what becomes of a configuration, or of a file of DeepSpeed, FSDP or accelerate",
     print_explanation},
    {"diff", 2, " A B",
     "print every key whose value differs between two configurations; exits with 0 if none does, "
     "with 1 if some do",
     print_differences},
};

std::string usage() {
  std::string text = "usage: trireme config ACTION [arguments]\n";
  for (const Action& action : kActions) {
    std::string line = std::string("  ") + action.name + action.arguments;
    line.resize(std::max<std::size_t>(line.size() + 2, 14), ' ');
    text += line + action.help + "\n";
  }
  return text;
}

}  // namespace

int run_config(Arguments arguments) {
  const std::string name = arguments.empty() ? "" : arguments[0];
  if (name == "--help" || name == "-h") {
    print(usage());
    return 0;
  }
  for (const Action& action : kActions) {
    if (name != action.name) continue;
    const Arguments rest = arguments.subspan(1);
    if (rest.size() != action.num_arguments) {
      throw Error(2010, "command line",
                  "trireme config " + name + " takes " + std::to_string(action.num_arguments) + " arguments, not " +
                      std::to_string(rest.size()),
                  "write: trireme config " + name + action.arguments);
    }
    const int exit_code = action.run(rest);
    flush_output();
    return exit_code;
  }
  throw Error(
      2010, "command line",
      name.empty() ? "trireme config needs to know what to do" : "trireme config does not know " + config::shown(name),
      "`trireme config --help` lists what it can do");
}

}  // namespace trireme::cli
