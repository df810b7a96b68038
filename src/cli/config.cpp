#include <string>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "config/document.h"
#include "config/plan.h"

namespace trireme::cli {
namespace {

constexpr const char* kUsage =
    "usage: trireme config docs\n"
    "  docs   print every key of a configuration with its type, default and meaning, as Markdown\n";

}  // namespace

int run_config(Arguments arguments) {
  const std::string action = arguments.empty() ? "" : arguments[0];
  if (action == "--help" || action == "-h") {
    print(kUsage);
    return 0;
  }
  if (action != "docs" || arguments.size() > 1) {
    throw Error(2010, "command line",
                action.empty() ? "trireme config needs to know what to do"
                               : "trireme config does not know " + config::shown(arguments[action == "docs" ? 1 : 0]),
                "write: trireme config docs");
  }
  print(config::schema_as_markdown());
  flush_output();
  return 0;
}

}  // namespace trireme::cli
