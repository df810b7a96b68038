// `trireme train`: one rank of a run.
#include <csignal>

#include <CLI/CLI.hpp>
#include <atomic>
#include <optional>

#include "base/failpoint.h"
#include "base/log.h"
#include "base/torch_library.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/parse.h"
#include "comm/job.h"
#include "config/plan.h"
#include "kernels/device.h"
#include "train/dry_run.h"
#include "train/trainer.h"

namespace trireme::cli {

namespace {

struct TrainCommand {
  config::Plan plan;
  bool dry_run = false;
  bool distributed = false;
  std::optional<int> local_rank;
};

TrainCommand parse_train(Arguments arguments) {
  CLI::App app("Train a model: one rank, alone or as RANK of WORLD_SIZE. `trireme launch` starts several.",
               "trireme train");
  TrainCommand command;
  PlanArguments plan;
  bool use_fsdp = false;
  add_plan_arguments(app, plan);
  app.add_flag("--dry-run", command.dry_run, "print the resolved plan, parameters and memory; start nothing");
  app.add_flag("--distributed", command.distributed, "insist on RANK, WORLD_SIZE, ... from a launcher");
  app.add_option("--local_rank,--local-rank", command.local_rank, "checked against LOCAL_RANK");
  app.add_flag("--use-fsdp,--use_fsdp", use_fsdp, "distributed.strategy=full_shard");
  parse(app, arguments);

  if (use_fsdp) plan.words.emplace_back("distributed.strategy=full_shard");
  command.plan = load_plan_of(app.get_name(), std::move(plan));
  return command;
}

std::atomic<bool> stop_requested{false};  // a signal handler can reach nothing else

void request_stop_on_signals() {
  struct sigaction action {};
  action.sa_handler = [](int) { stop_requested.store(true, std::memory_order_relaxed); };
  std::signal(SIGPIPE, SIG_IGN);  // a reader that goes away costs lines, not the run
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) sigaction(signal, &action, nullptr);
}

void check_environment(const TrainCommand& command, const comm::WorkerEnvironment& environment) {
  if (command.local_rank && *command.local_rank != environment.local_rank) {
    throw Error(
        3005, "command line: --local_rank",
        "is " + std::to_string(*command.local_rank) + ", but LOCAL_RANK is " + std::to_string(environment.local_rank),
        "leave --local_rank out: the launcher's environment says it");
  }
  if (command.distributed && environment.world_size == 1 && environment.master_addr.empty() &&
      environment.control_fd < 0) {
    throw Error(3006, "command line: --distributed", "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are not set",
                "start with `trireme launch --nproc-per-node N train ...` or torchrun");
  }
}

train::Ranks ranks_of(const comm::WorkerEnvironment& environment) {
  const bool is_alone = environment.world_size == 1 && environment.master_addr.empty() && environment.control_fd < 0;
  return {environment.world_size, is_alone ? "no launcher" : "WORLD_SIZE", environment.local_world_size,
          environment.local_rank};
}

int train_as_rank(const config::Plan& plan, const comm::WorkerEnvironment& environment) {
  const TorchLoading meanwhile;
  comm::Membership membership = comm::join(environment, {.timeout_s = plan.distributed.timeout_seconds,
                                                         .same_host_memory = plan.distributed.same_host_memory});
  try {
    train::Trainer trainer(plan, {.comm = membership.comm.get(),
                                  .stop = &stop_requested,
                                  .local_ranks = environment.local_world_size,
                                  .local_rank = environment.local_rank});
    return trainer.run().stopped ? 75 : 0;
  } catch (const std::exception& error) {
    throw membership.fail(error);
  }
}

// What cannot run fails here, before it waits for its peers and before it writes anything.
void check_before_join(const TrainCommand& command, const comm::WorkerEnvironment& environment) {
  try {
    failpoint("train.start", environment.rank);
    check_environment(command, environment);
    train::describe_run(command.plan, ranks_of(environment));
    log::open_rank_log(command.plan.output_dir / "logs" / ("rank-" + std::to_string(environment.rank) + ".log"),
                       environment.rank != 0);
  } catch (const Error& error) {
    comm::report_before_join(environment, error);
    throw;
  }
}

}  // namespace

bool check_train(Arguments arguments, int world_size) {
  const TrainCommand command = parse_train(arguments);
  const std::string description = train::describe_run(command.plan, {world_size, "--nproc-per-node"}).text;
  kernels::release_device();  // they are the workers'
  if (command.dry_run) {
    print(description);
    flush_output();
  }
  return command.dry_run;
}

int run_train(Arguments arguments) {
  const TrainCommand command = parse_train(arguments);
  const comm::WorkerEnvironment environment = comm::read_worker_environment();
  if (command.dry_run) {
    check_environment(command, environment);
    print(train::describe_run(command.plan, ranks_of(environment)).text);
    flush_output();
    return 0;
  }
  request_stop_on_signals();
  try {
    check_before_join(command, environment);
    return train_as_rank(command.plan, environment);
  } catch (const Error& error) {
    log::record(error.what());
    if (environment.control_fd < 0) throw;
    return error.exit_code();  // our agent prints the job's one error
  }
}

}  // namespace trireme::cli
