// `trireme bench train`: how fast a known model trains here, as one row of JSON.
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/torch_library.h"
#include "cli/bench.h"
#include "cli/output.h"
#include "cli/parse.h"
#include "comm/job.h"
#include "measure/known_models.h"
#include "measure/timing.h"
#include "measure/training_run.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

struct TrainBench {
  measure::TrainingRun run;
  int ranks = 1;
  std::string output;
  std::string folder;  // of a worker: the job's
};

TrainBench parse_train_bench(Arguments arguments) {
  CLI::App app("Train a known model on random tokens with `trireme train`'s own Trainer, and write a row of JSON.",
               "trireme bench train");
  TrainBench command;
  measure::TrainingRun& run = command.run;
  const auto positive = CLI::Range(1, 1 << 24);
  app.add_option("--model", run.model, measure::known_model_names())->required();
  app.add_option("--seq", run.sequence, "tokens of a sequence")->required()->check(positive);
  app.add_option("--micro-batch", run.micro_batch, "sequences that a rank computes at once (1)")->check(positive);
  app.add_option("--accumulate", run.accumulate, "micro-batches of a rank in a step (1)")->check(positive);
  app.add_option("--steps", run.steps, "steps that count (50)")->check(positive);
  app.add_option("--warm-up", run.warm_up, "steps before them (10)")->check(positive);
  app.add_option("--recompute", run.recompute, "none, selective, full (none)");
  app.add_option("--device", run.device, "auto, cpu, cuda (auto: cuda where there is a device)")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  app.add_option("--precision", run.precision, "bf16, fp16, no (bf16)");
  app.add_option("--strategy", run.strategy, "as distributed.strategy (ddp)");
  app.add_option("--ranks", command.ranks, "processes, each with a device where there are any (1)")
      ->check(CLI::Range(1, 64));
  app.add_option("--floor", run.floor_s, "seconds to measure a step's parts for, of which the floor is made (0: none)")
      ->check(CLI::Range(0.0, 600.0));
  app.add_option("--output", command.output, "file to write the row to");
  app.add_option("OVERRIDES", run.overrides, "key=value of a configuration, for what has no option here");
  app.add_option("--folder", command.folder)->group("");
  app.add_option("--started", run.started)->group("");
  parse(app, arguments);
  measure::known_model(run.model, run.sequence);
  return command;
}

// Data and output of one run; gone with it.
class WorkFolder {
 public:
  WorkFolder() {
    std::string pattern = (fs::temp_directory_path() / "trireme-bench-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) {
      throw Error(kWriteFailed, pattern, "cannot be made", "set TMPDIR to a folder that this user can write to");
    }
    path_ = pattern;
  }
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;
  ~WorkFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

int run_rank(const TrainBench& command, const fs::path& folder) {
  const comm::WorkerEnvironment environment = comm::read_worker_environment();
  const TorchLoading meanwhile;
  comm::Membership membership = comm::join(environment, {.timeout_s = 600});
  try {
    const auto row = measure::measure_training(command.run, folder, *membership.comm, environment.local_world_size);
    if (environment.rank != 0) return 0;
    if (!command.output.empty()) write_file_atomic(command.output, row.dump(2) + "\n");
    print(row.dump() + "\n");
    flush_output();
    return 0;
  } catch (const std::exception& error) {
    throw membership.fail(error);
  }
}

}  // namespace

int run_bench_train(Arguments arguments) {
  TrainBench command = parse_train_bench(arguments);
  if (!command.folder.empty()) return run_rank(command, command.folder);
  command.run.started = measure::start_of_process();
  const WorkFolder folder;
  measure::prepare_training_run(command.run, command.ranks, folder.path());
  if (command.ranks == 1) return run_rank(command, folder.path());
  std::vector<std::string> worker{"bench", "train"};
  worker.insert(worker.end(), arguments.begin(), arguments.end());
  for (const std::string& word : {std::string("--folder"), folder.path().string(), std::string("--started"),
                                  std::to_string(command.run.started)}) {
    worker.push_back(word);
  }
  return launch_bench(command.ranks, std::move(worker));
}

}  // namespace trireme::cli
