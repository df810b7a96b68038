// `trireme plan`: what a run would be, how long its step would take, and a drawing of it.
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/file.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/parse.h"
#include "schedule/draw.h"
#include "train/device.h"
#include "train/dry_run.h"
#include "train/prediction.h"
#include "train/rates_here.h"

namespace trireme::cli {

namespace {

struct PlanCommand {
  config::Plan plan;
  int ranks = 1, rank = 0;
  std::string schedule_file;  // empty: none
  schedule::Rates rates;
};

PlanCommand parse_plan(Arguments arguments) {
  CLI::App app("Check, price and draw a training step before anything runs.", "trireme plan");
  PlanCommand command;
  PlanArguments plan;
  std::string rates;
  add_plan_arguments(app, plan);
  app.add_option("--ranks", command.ranks, "how many ranks the run would have (1)");
  app.add_option("--rank", command.rank, "the rank to look at (0)");
  app.add_option("--schedule", command.schedule_file,
                 "write the timeline here, for chrome://tracing and ui.perfetto.dev");
  app.add_option("--rates", rates,
                 "JSON file with the speeds of processor and network; by default what `trireme bench` wrote");
  parse(app, arguments);
  if (command.ranks < 1) {
    throw Error(2011, "command line: --ranks", "is " + std::to_string(command.ranks), "a run has at least one rank");
  }
  if (command.rank < 0 || command.rank >= command.ranks) {
    throw Error(2012, "command line: --rank",
                "is " + std::to_string(command.rank) + ", but --ranks is " + std::to_string(command.ranks),
                "ranks are counted from 0 to " + std::to_string(command.ranks - 1));
  }
  command.plan = train::with_device(load_plan_of(app.get_name(), std::move(plan)), {command.ranks});
  command.rates = rates.empty() ? train::rates_here(command.plan) : schedule::read_rates(rates);
  return command;
}

int output_width() {
  winsize size{};
  const bool is_terminal = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return is_terminal ? size.ws_col : 80;
}

}  // namespace

int run_plan(Arguments arguments) {
  const PlanCommand command = parse_plan(arguments);
  const train::RunDescription run = train::describe_run(command.plan, {command.ranks, "--ranks"}, command.rank);
  const train::Prediction prediction = train::predict(run.step, command.rates);
  if (!command.schedule_file.empty()) {
    const schedule::TraceProcess planned{"planned", prediction.timeline};
    write_file_atomic(command.schedule_file,
                      schedule::to_chrome_trace(run.step.chain, run.step.options, run.step.program(),
                                                std::span(&planned, 1), command.rates.words()));
  }
  print(run.text);
  print(prediction.text + "\n");
  print(schedule::draw_step(run.step.chain, run.step.program(), prediction.timeline, output_width()));
  flush_output();
  return 0;
}

}  // namespace trireme::cli
