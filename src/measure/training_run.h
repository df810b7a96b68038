// `trireme bench train`: a known model, trained on random tokens by the Trainer that `trireme train` runs.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "comm/job.h"
#include "config/plan.h"

namespace trireme::measure {

struct TrainingRun {
  std::string model;  // known_models.h
  std::int64_t sequence = 0, micro_batch = 1, accumulate = 1;
  std::int64_t steps = 50, warm_up = 10;  // those that count, and those before
  std::string device = "auto", strategy = "ddp", recompute = "none", precision = "bf16";
  std::vector<std::string> overrides;  // key=value of the configuration, which win
  double floor_s = 0;                  // seconds to measure the parts of the floor for; 0: no floor
  double started = 0;                  // on the clock of seconds_since_boot(): the run's first process
};

// Writes the tokens that all ranks of the run read, for so many of them, into a folder of its own.
void prepare_training_run(const TrainingRun& run, int ranks, const std::filesystem::path& folder);

// Trains. The row of rank 0, with what docs/performance.md shows of a run; of other ranks nothing.
nlohmann::ordered_json measure_training(const TrainingRun& run, const std::filesystem::path& folder,
                                        comm::Communicator& comm, int local_ranks);

}  // namespace trireme::measure
