// `trireme bench comm`: how fast ranks exchange what training exchanges.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "cli/bench.h"
#include "cli/output.h"
#include "cli/parse.h"
#include "comm/job.h"
#include "measure/collectives.h"
#include "measure/device.h"
#include "train/device.h"

namespace trireme::cli {
namespace {

constexpr std::int64_t kLatencyBytes = 1024;  // so few that only the way counts

struct CommBench {
  int ranks = 2;
  std::vector<double> sizes{1, 4, 16, 64, 256};
  std::string device = "auto", precision = "bf16", output;
  measure::CommOptions options;
  bool is_worker = false;
};

CommBench parse_comm_bench(Arguments arguments) {
  CLI::App app(
      "Time the collectives of training between ranks of this machine, alone and beside matrix products: all-gather, "
      "reduce-scatter (slots sent as they are and summed in rank order) and all-reduce.\n"
      "GB/s are of the bus: bytes / seconds x (n - 1) / n for n ranks, twice that of an all-reduce (nccl-tests, "
      "doc/PERFORMANCE.md).",
      "trireme bench comm");
  CommBench command;
  app.add_option("--ranks", command.ranks, "processes, each with a device where there are as many (2)")
      ->check(CLI::Range(2, 64));
  app.add_option("--sizes", command.sizes, "MiB, of a whole: 1,4,16,64,256")
      ->delimiter(',')
      ->check(CLI::Range(0.001, 16384.0));
  app.add_option("--device", command.device, "auto, cpu, cuda (auto: cuda where each rank has a device)")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  app.add_option("--precision", command.precision, "of weights and slots: bf16, no (bf16)")
      ->check(CLI::IsMember({"bf16", "no"}));
  bool nccl = false;
  app.add_flag("--nccl", nccl, "devices through NCCL, also where they reach each other's memory and copies would do");
  app.add_option("--threads", command.options.threads, "that compute beside, of a rank on the CPU (1)")
      ->check(CLI::Range(1, 1024));
  app.add_option("--seconds", command.options.seconds, "for each number, about (0.5)")->check(CLI::Range(0.0, 60.0));
  app.add_option("--output", command.output, "JSON file to write");
  app.add_flag("--worker", command.is_worker)->group("");
  parse(app, arguments);
  command.options.copies = !nccl;
  if (command.precision == "no") command.options.dtype = DType::f32;
  command.options.bytes = {kLatencyBytes};
  for (const double size : command.sizes) {
    command.options.bytes.push_back(static_cast<std::int64_t>(size * (1 << 20)));
  }
  return command;
}

nlohmann::ordered_json json_of(const CommBench& command, const std::vector<measure::CommRow>& rows) {
  const bool on_device = command.options.device >= 0;
  nlohmann::ordered_json json{
      {"card", measure::card_name(on_device)},         {"ranks", command.ranks},
      {"gpus", on_device ? command.ranks : 0},         {"through", rows.front().way},
      {"latency_s", nlohmann::ordered_json::object()}, {"rows", nlohmann::ordered_json::array()}};
  for (const measure::CommRow& row : rows) {
    const std::string name(to_string(row.collective));
    if (!row.loaded && !json["latency_s"].contains(name)) json["latency_s"][name] = row.seconds.median;
    json["rows"].push_back({{"collective", name},
                            {"dtype", to_string(row.dtype)},
                            {"bytes", row.bytes},
                            {"beside_products", row.loaded},
                            {"runs", row.seconds.runs},
                            {"seconds", row.seconds.median},
                            {"seconds_spread", {row.seconds.low, row.seconds.high}},
                            {"bus_bytes_per_s", row.bus_bytes_per_s}});
  }
  return json;
}

int run_rank(CommBench command) {
  const comm::WorkerEnvironment environment = comm::read_worker_environment();
  comm::Membership membership = comm::join(environment, {.timeout_s = 600});
  try {
    if (train::uses_device(command.device, command.ranks)) command.options.device = environment.local_rank;
    const std::vector<measure::CommRow> rows = measure::measure_comm(command.options, *membership.comm);
    if (environment.rank != 0) return 0;
    if (!command.output.empty()) write_file_atomic(command.output, json_of(command, rows).dump(2) + "\n");
    print(fmt::format("{} ranks, {}, through {}\n", command.ranks, measure::card_name(command.options.device >= 0),
                      rows.front().way) +
          measure::to_table(rows));
    flush_output();
    return 0;
  } catch (const std::exception& error) {
    throw membership.fail(error);
  }
}

}  // namespace

int run_bench_comm(Arguments arguments) {
  const CommBench command = parse_comm_bench(arguments);
  if (command.is_worker) return run_rank(command);
  std::vector<std::string> worker{"bench", "comm", "--worker"};
  worker.insert(worker.end(), arguments.begin(), arguments.end());
  return launch_bench(command.ranks, std::move(worker));
}

}  // namespace trireme::cli
