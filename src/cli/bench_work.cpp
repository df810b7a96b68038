// `trireme bench gemm` and `trireme bench attention`: the parts of a known model's step by themselves; `bench models`.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "cli/bench.h"
#include "cli/output.h"
#include "cli/parse.h"
#include "measure/device.h"
#include "measure/known_models.h"
#include "measure/model_work.h"
#include "train/device.h"

namespace trireme::cli {
namespace {

using measure::WorkRow;

struct WorkBench {
  std::string model, device = "auto", output;
  measure::WorkOptions options;
};

WorkBench parse_work_bench(Arguments arguments, const char* what, const char* name) {
  CLI::App app(what, name);
  WorkBench command;
  const auto positive = CLI::Range(1, 1 << 24);
  app.add_option("--model", command.model, measure::known_model_names())->required();
  app.add_option("--seq", command.options.micro_batch.sequence, "tokens of a sequence")->required()->check(positive);
  app.add_option("--micro-batch", command.options.micro_batch.batch, "sequences (1)")->check(positive);
  app.add_option("--seconds", command.options.seconds, "for all together, the first quarter to warm up (20)")
      ->check(CLI::Range(0.0, 600.0));
  app.add_option("--device", command.device, "auto, cpu, cuda (auto: cuda where there is a device)")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  app.add_option("--output", command.output, "file to write the rows to, as JSON");
  parse(app, arguments);
  command.options.on_device = train::uses_device(command.device);
  return command;
}

std::string words_of(const std::vector<WorkRow>& rows) {
  const bool is_attention = rows.front().work == "attention";
  std::string text = fmt::format("  {:<35}{:>8}{:>8}{:>8}{:>10}{:>10}\n", "", is_attention ? "B" : "m",
                                 is_attention ? "T" : "n", is_attention ? "D" : "k", "us", "TFLOP/s");
  for (const WorkRow& row : rows) {
    text += fmt::format("  {:<18}{:<17}{:>8}{:>8}{:>8}{:>10.1f}{:>10.1f}\n", row.work, row.part, row.m, row.n, row.k,
                        1e6 * row.seconds.median, 1e-12 * row.flops / row.seconds.median);
  }
  double seconds = 0, flops = 0;
  for (const WorkRow& row : rows) {
    seconds += row.times * row.seconds.median;
    flops += row.times * row.flops;
  }
  return text +
         fmt::format("  {:<59}{:>10.1f}{:>10.1f}\n", "a micro-batch's, all", 1e6 * seconds, 1e-12 * flops / seconds);
}

nlohmann::ordered_json json_of(const WorkBench& command, const std::vector<WorkRow>& rows) {
  nlohmann::ordered_json json{{"card", measure::card_name(command.options.on_device)},
                              {"model", command.model},
                              {"sequence", command.options.micro_batch.sequence},
                              {"micro_batch", command.options.micro_batch.batch},
                              {"dtype", "bf16"},
                              {"rows", nlohmann::ordered_json::array()}};
  for (const WorkRow& row : rows) {
    json["rows"].push_back({{"work", row.work},
                            {"part", row.part},
                            {"m", row.m},
                            {"n", row.n},
                            {"k", row.k},
                            {"times", row.times},
                            {"runs", row.seconds.runs},
                            {"seconds", row.seconds.median},
                            {"seconds_spread", {row.seconds.low, row.seconds.high}},
                            {"flops_per_s", row.flops / row.seconds.median}});
  }
  return json;
}

int run(const WorkBench& command) {
  const measure::ModelShape shape =
      measure::shape_of(measure::known_model(command.model, command.options.micro_batch.sequence));
  const std::vector<WorkRow> rows = measure::measure_work(shape, command.options);
  if (!command.output.empty()) write_file_atomic(command.output, json_of(command, rows).dump(2) + "\n");
  print(words_of(rows));
  flush_output();
  return 0;
}

}  // namespace

int run_bench_models(Arguments arguments) {
  CLI::App app("Print the shapes of the models that `trireme bench` knows.", "trireme bench models");
  parse(app, arguments);
  nlohmann::ordered_json models;
  for (const std::string& name : measure::all_known_models()) {
    const measure::ModelShape s = measure::shape_of(measure::known_model(name, 1024));
    models[name] = {{"hidden_size", s.C},
                    {"intermediate_size", s.F},
                    {"num_layers", s.L},
                    {"num_heads", s.H},
                    {"num_key_value_heads", s.K},
                    {"head_dim", s.D},
                    {"vocabulary_rows", s.V},
                    {"gated", s.gated},
                    {"tied", s.tied},
                    {"parameters", s.parameters},
                    {"matmul_weights", s.matmul_weights()},
                    {"flops_per_token_at_1024", s.flops_per_token(1024)}};
  }
  print(models.dump(2) + "\n");
  flush_output();
  return 0;
}

int run_bench_gemm(Arguments arguments) {
  WorkBench command =
      parse_work_bench(arguments, "Time the matrix products of a known model's step.", "trireme bench gemm");
  command.options.products = true;
  return run(command);
}

int run_bench_attention(Arguments arguments) {
  WorkBench command =
      parse_work_bench(arguments, "Time the attention of a known model's step.", "trireme bench attention");
  command.options.attention = true;
  return run(command);
}

}  // namespace trireme::cli
