#include "launch/command_line.h"

#include <dirent.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/cpu.h"
#include "base/error.h"
#include "base/log.h"

namespace trireme::launch {
namespace {

constexpr int kMaxWorkers = 4096;
constexpr std::array<std::string_view, 1> kWorkerCommands = {"train"};

enum class Kind : std::uint8_t {
  used,     // takes a value
  inert,    // takes a value; without effect on one node
  flag,     // takes none; without effect here
  not_yet,  // refused
};

struct Option {
  std::string_view name;
  Kind kind;
  std::string_view help;
};

constexpr std::array kOptions = {
    Option{"--nproc-per-node", Kind::used, "number of workers, or auto, cpu, gpu (default 1)"},
    Option{"--nnodes", Kind::used, "1: several nodes come later"},
    Option{"--node-rank", Kind::used, "0"},
    Option{"--max-restarts", Kind::used, "0: restarts come later"},
    Option{"--master-addr", Kind::used, "told to the workers, which need it for nothing yet"},
    Option{"--master-port", Kind::used, "the same"},
    Option{"--grace-seconds", Kind::used, "from SIGTERM or SIGINT to SIGKILL (default 30)"},
    Option{"--standalone", Kind::flag, "without effect: one node always is"},
    Option{"--no-python", Kind::flag, "without effect: the worker is no Python script"},
    Option{"--rdzv-backend", Kind::inert, "without effect on one node, as are the next five"},
    Option{"--rdzv-endpoint", Kind::inert, ""},
    Option{"--rdzv-id", Kind::inert, ""},
    Option{"--local-addr", Kind::inert, ""},
    Option{"--role", Kind::inert, ""},
    Option{"--monitor-interval", Kind::inert, ""},
    Option{"--rdzv-conf", Kind::not_yet, ""},
    Option{"--start-method", Kind::not_yet, ""},
    Option{"--log-dir", Kind::not_yet, ""},
    Option{"--redirects", Kind::not_yet, ""},
    Option{"--tee", Kind::not_yet, ""},
    Option{"--module", Kind::not_yet, ""},
    Option{"--run-path", Kind::not_yet, ""},
};

[[noreturn]] void refuse(int code, std::string_view option, const std::string& message, const std::string& remedy) {
  throw Error(code, "command line: " + std::string(option), message, remedy);
}

std::optional<int> to_number(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

int number_in(std::string_view option, const std::string& text, int low, int high) {
  const auto value = to_number(text);
  if (value && *value >= low && *value <= high) return *value;
  refuse(2005, option, "is \"" + text + "\"", "a number from " + std::to_string(low) + " to " + std::to_string(high));
}

// For what exists with one value only.
void only(std::string_view option, const std::string& text, std::initializer_list<std::string_view> allowed,
          const std::string& what) {
  if (std::find(allowed.begin(), allowed.end(), text) != allowed.end()) return;
  refuse(2006, option, "is \"" + text + "\": " + what + ", not yet", "leave it out");
}

void apply(LaunchOptions& options, std::string_view option, const std::string& value) {
  if (option == "--nproc-per-node") {
    options.nproc_per_node = resolve_nproc(value);
  } else if (option == "--nnodes") {
    only(option, value, {"1", "1:1"}, "several nodes");
  } else if (option == "--node-rank") {
    only(option, value, {"0"}, "several nodes");
  } else if (option == "--max-restarts") {
    only(option, value, {"0"}, "restarts");
  } else if (option == "--master-addr") {
    options.master_addr = value;
  } else if (option == "--master-port") {
    options.master_port = number_in(option, value, 0, 65535);
  } else {
    options.grace_seconds = number_in(option, value, 0, 86'400);
  }
}

// torchrun writes its options with either sign.
std::string spelled_with_hyphens(std::string_view name) {
  std::string result(name);
  std::replace(result.begin() + std::min<std::size_t>(2, result.size()), result.end(), '_', '-');
  return result;
}

const Option& find_option(std::string_view name) {
  const std::string spelled = spelled_with_hyphens(name);
  const auto found =
      std::find_if(kOptions.begin(), kOptions.end(), [&](const Option& option) { return option.name == spelled; });
  if (found == kOptions.end())
    refuse(2004, name, "no such option of launch",
           "`trireme launch --help` lists them; the worker's own come after its name");
  if (found->kind == Kind::not_yet) refuse(2006, name, "not yet", "leave it out");
  return *found;
}

// Device files, so that a build without CUDA can count too.
int count_gpus() {
  DIR* folder = ::opendir("/dev");
  if (folder == nullptr) return 0;
  int count = 0;
  while (const dirent* entry = ::readdir(folder)) {
    const std::string_view name(entry->d_name);
    const bool is_gpu = name.starts_with("nvidia") && name.size() > 6 &&
                        name.find_first_not_of("0123456789", 6) == std::string_view::npos;
    count += is_gpu ? 1 : 0;
  }
  ::closedir(folder);
  return count;
}

void check_command(const std::vector<std::string>& command) {
  const std::string usage = "trireme launch --nproc-per-node 2 train configs/quickstart.yaml";
  if (command.empty()) throw Error(2007, "command line", "launch needs the command that the workers shall run", usage);
  const bool known =
      std::find(kWorkerCommands.begin(), kWorkerCommands.end(), command.front()) != kWorkerCommands.end();
  if (!known)
    throw Error(2007, "command line", "launch cannot run \"" + command.front() + "\" in workers, only train", usage);
}

}  // namespace

int resolve_nproc(const std::string& text) {
  const int gpus = text == "auto" || text == "gpu" ? count_gpus() : 0;
  if (text == "gpu" && gpus == 0)
    throw Error(3053, "command line: --nproc-per-node", "is gpu, but this machine has none", "cpu, or a number");
  if (gpus > 0) return gpus;
  if (text == "auto" || text == "cpu") return count_cpus();
  const auto value = to_number(text);
  if (value && *value >= 1 && *value <= kMaxWorkers) return *value;
  refuse(2005, "--nproc-per-node", "is \"" + text + "\"",
         "a number from 1 to " + std::to_string(kMaxWorkers) + ", auto, cpu or gpu");
}

LaunchOptions parse_command_line(std::span<const std::string> arguments) {
  LaunchOptions options;
  std::size_t next = 0;
  while (next < arguments.size() && arguments[next].starts_with('-')) {
    const std::string& argument = arguments[next++];
    const std::size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    const Option& option = find_option(name);
    if (option.kind == Kind::flag) {
      if (equals != std::string::npos) refuse(2005, name, "takes no value", name);
      continue;
    }
    if (equals == std::string::npos && next == arguments.size()) refuse(2005, name, "has no value", name + " VALUE");
    const std::string value = equals != std::string::npos ? argument.substr(equals + 1) : arguments[next++];
    if (option.kind == Kind::inert) {
      log::info("launch: " + name + " has no effect on one node");
    } else {
      apply(options, option.name, value);
    }
  }
  options.command.assign(arguments.begin() + static_cast<std::ptrdiff_t>(next), arguments.end());
  check_command(options.command);
  return options;
}

std::string launch_help() {
  std::string text =
      "usage: trireme launch [options] train CONFIG [key=value ...]\n\n"
      "Starts the workers of this machine, watches them, and ends all when one fails. SIGTERM, SIGINT and SIGUSR1 are\n"
      "handed to them: they save and end with 75. The options are torchrun's; those after `train` are the "
      "worker's.\n\n";
  for (const Option& option : kOptions) {
    if (option.kind == Kind::not_yet) continue;
    std::string line = "  " + std::string(option.name) + (option.kind == Kind::flag ? "" : " VALUE");
    line.resize(std::max<std::size_t>(line.size(), 28), ' ');
    text += line + std::string(option.help) + "\n";
  }
  return text;
}

}  // namespace trireme::launch
