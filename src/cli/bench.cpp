// `trireme bench`: how fast this machine is, for `trireme plan`; and by kind, how fast models and their parts are.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/cpu.h"
#include "base/error.h"
#include "base/file.h"
#include "cli/bench.h"
#include "cli/output.h"
#include "cli/parse.h"
#include "comm/job.h"
#include "kernels/device.h"
#include "launch/agent.h"
#include "measure/rates.h"
#include "train/device.h"

namespace trireme::cli {

namespace {

struct BenchKind {
  const char* name;
  const char* what;
  int (*run)(Arguments);
};

constexpr BenchKind kBenchKinds[] = {
    {"train", "a known model on random tokens", run_bench_train},
    {"gemm", "its matrix products", run_bench_gemm},
    {"attention", "its attention", run_bench_attention},
    {"models", "the known models as JSON", run_bench_models},
    {"kernels", "a device's other kernels beside its copy", run_bench_kernels},
    {"comm", "the collectives of training, by size", run_bench_comm},
};

std::string kinds() {
  std::string text;
  for (const BenchKind& kind : kBenchKinds) {
    text += std::string(text.empty() ? "" : "; ") + kind.name + ", " + kind.what;
  }
  return text;
}

constexpr int kMostRanks = 64;

struct BenchCommand {
  int ranks = 0;
  measure::RatesOptions options;
  std::string device = "auto", output, machine;
  bool is_worker = false;  // of several: the command has started itself
};

BenchCommand parse_bench(Arguments arguments) {
  CLI::App app(
      "Measure this machine: matrix products, attention, memory, optimizer, collectives.\n"
      "`trireme bench KIND --help`: " +
          kinds(),
      "trireme bench");
  BenchCommand command;
  const CLI::Option* ranks = app.add_option(
      "--ranks", command.ranks, "ranks that compute at the same time and exchange data (one a device; on the CPU 2)");
  app.add_option("--threads", command.options.threads, "compute threads of a rank, as training.compute_threads (1)");
  app.add_option("--device", command.device, "auto, cpu, cuda (auto: cuda where each rank has a device)")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  app.add_option("--seconds", command.options.seconds, "for each number, about (0.3)");
  app.add_option("--output", command.output, "file to write; by default where `plan` and `train` look for it");
  app.add_option("--machine", command.machine, "words that the file repeats");
  app.add_flag("--worker", command.is_worker)->group("");
  parse(app, arguments);
  if (ranks->count() == 0) {
    const int devices = command.device == "cpu" ? 0 : kernels::num_devices();
    command.ranks = devices > 0 ? std::min(devices, kMostRanks) : 2;
  }
  const auto check = [](const char* option, double value, double most) {
    if (value > 0 && value <= most) return;
    throw Error(2013, std::string("command line: ") + option,
                fmt::format("is {:g}, not above 0 and at most {:g}", value, most));
  };
  check("--ranks", command.ranks, kMostRanks);
  check("--threads", command.options.threads, 1024);
  check("--seconds", command.options.seconds, 60);
  return command;
}

std::string words_of(const schedule::Rates& rates) {
  std::string text;
  const auto add = [&](const std::string& what, double value, const char* unit) {
    text += fmt::format("  {:<40}{:>10.3g} {}\n", what, value, unit);
  };
  for (const auto& [name, operations] : {std::pair("fp32", rates.fp32), std::pair("bf16", rates.half)}) {
    add(fmt::format("{} products, a side below 256", name), operations.small, "operations/s");
    add(fmt::format("{} products, a side below 1024", name), operations.medium, "operations/s");
    add(fmt::format("{} products, larger", name), operations.large, "operations/s");
    add(fmt::format("{} attention", name), operations.attention, "operations/s");
  }
  add("memory", rates.bytes_moved_per_s, "bytes/s");
  add("AdamW", rates.optimizer_bytes_per_s, "bytes/s");
  if (rates.host_copy_bytes_per_s > 0) add("copies to the host", rates.host_copy_bytes_per_s, "bytes/s");
  if (rates.host_optimizer_bytes_per_s > 0) add("AdamW in host memory", rates.host_optimizer_bytes_per_s, "bytes/s");
  if (rates.loaded_collective_bytes_per_s == 0) return text;
  add("collectives, until the first bytes", rates.collective_latency_s, "s");
  add("collectives", rates.collective_bytes_per_s, "bytes/s");
  add("collectives beside computing", rates.loaded_collective_bytes_per_s, "bytes/s");
  return text;
}

void write_rates(const BenchCommand& command, const schedule::Rates& rates) {
  std::filesystem::path file = command.output;
  if (file.empty()) file = schedule::rates_file(rates.measured_on);
  if (file.empty()) {
    throw Error(2014, "trireme bench", "neither HOME nor XDG_CACHE_HOME is set", "say where to write with --output");
  }
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path());
  write_file_atomic(file, schedule::to_json(rates, command.machine));
  print(words_of(rates) + "written to " + file.string() + "\n");
  flush_output();
}

int measure(const BenchCommand& command) {
  const comm::WorkerEnvironment environment = comm::read_worker_environment();
  comm::Membership membership = comm::join(environment, {.timeout_s = 600});
  try {
    measure::RatesOptions options = command.options;
    if (train::uses_device(command.device, command.ranks)) options.device = environment.local_rank;
    options.host_threads = std::max(1, count_cpus() / command.ranks);
    const schedule::Rates rates = measure::measure_rates(options, *membership.comm);
    if (environment.rank == 0) write_rates(command, rates);
    return 0;
  } catch (const std::exception& error) {
    throw membership.fail(error);
  }
}

}  // namespace

int run_bench(Arguments arguments) {
  for (const BenchKind& kind : kBenchKinds) {
    if (!arguments.empty() && arguments[0] == kind.name) return kind.run(arguments.subspan(1));
  }
  const BenchCommand command = parse_bench(arguments);
  if (command.is_worker || command.ranks == 1) return measure(command);
  std::vector<std::string> worker{"bench", "--worker"};
  worker.insert(worker.end(), arguments.begin(), arguments.end());
  return launch_bench(command.ranks, std::move(worker));
}

int launch_bench(int ranks, std::vector<std::string> command) {
  return launch::run_agent({.nproc_per_node = ranks,
                            .command = std::move(command),
                            .program = std::filesystem::read_symlink("/proc/self/exe")});
}

}  // namespace trireme::cli
