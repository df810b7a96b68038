// The Trainer: one rank's run from plan to last step. Can be built, run and destroyed many times in one process.
//
//   Trainer trainer(plan, {.comm = comm, .sinks = ...});
//   RunResult result = trainer.run();
//
// All ranks build it with the same plan and call run() at the same time. Files are written by rank 0 (see
// docs/architecture.md).
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "comm/communicator.h"
#include "config/plan.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "engine/engine.h"
#include "monitor/epoch_loss.h"
#include "monitor/metrics.h"
#include "train/model_source.h"
#include "train/overlap.h"
#include "train/product_ways.h"
#include "train/resolve.h"
#include "train/state_reader.h"

namespace trireme::train {

struct TrainerOptions {
  comm::Communicator* comm = nullptr;       // outlives the trainer
  const std::atomic<bool>* stop = nullptr;  // set by a signal handler: save at the next step boundary on all ranks, end
  int local_ranks = 0;                      // that share this machine's cores; 0: all of comm
  int local_rank = -1;                      // its number among them; -1: as ranks follow each other
  bool console = true;                      // rank 0 prints to standard output
  bool saves = true;                        // false: no checkpoint is ever written
  std::optional<ModelConfig> model;         // in place of the plan's sizes, with random weights
  std::function<void(const data::StepBatches&, std::int64_t step)>
      on_batches;                                           // tests: the sample ids of a step, before it runs
  std::function<void(const monitor::StepRecord&)> on_step;  // every rank, after each step
};

struct RunResult {
  std::int64_t last_step = 0;
  bool stopped = false;  // before total_steps: exit code 75
};

class Trainer {
 public:
  // Opens the data, resumes or initialises. Throws Error; nothing is written before all checks passed on this rank.
  Trainer(const config::Plan& plan, const TrainerOptions& options);
  ~Trainer();

  RunResult run();

  std::int64_t step() const { return step_; }  // completed steps
  engine::Engine& engine() { return *engine_; }
  const std::optional<Overlap>& overlap() const { return overlap_; }  // where monitor.exposed_communication asks for it

 private:
  std::optional<std::int64_t> agree_on_checkpoint();  // step to resume from; loads nothing yet
  void choose_products();
  void load(const checkpoint::Reader& reader);
  void begin();  // what a start writes: the attempt, resolved plan, tokenizer, logs
  void begin_attempt();
  void finish();
  void save();  // once a step; throws when it cannot, on all ranks where they hold slices
  checkpoint::Manifest manifest() const;
  void write_checkpoint(StateReader& state);
  void save_or_go_on();  // in mid-run: a failed save is told and tried again at the next interval
  void evaluate();
  void emit(const nlohmann::json& event);
  void emit_end(const char* name);
  Overlap measure_overlap_of_run();
  data::SampleOrder sample_order() const {
    return {plan_.training.seed, train_data_.num_samples(), plan_.data.shuffle};
  }
  void tell_overlap(const Overlap& overlap);           // of monitor.exposed_communication
  void write_trace(engine::StepReport report);         // of the step that monitor.trace_step asks for
  void tell_epoch(const monitor::StepRecord& record);  // where one ends
  std::uint64_t device_memory();
  monitor::StepRecord record_of(const engine::StepReport& report, double learning_rate, double seconds);
  void tell_skip(const engine::StepReport& report);
  std::filesystem::path checkpoints() const { return plan_.output_dir / "checkpoints"; }
  bool is_first_rank() const { return comm_.rank() == 0; }

  config::Plan plan_;
  TrainerOptions options_;
  comm::Communicator& comm_;
  data::Dataset train_data_;
  std::unique_ptr<data::Dataset> held_out_;
  std::unique_ptr<checkpoint::Reader> resumed_;  // until loaded
  std::optional<ModelSource> model_;
  ResolvedRun run_;
  Chain chain_;
  ProductWays products_;  // on devices
  std::optional<Overlap> overlap_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<data::Loader> loader_;
  std::vector<std::unique_ptr<monitor::Sink>> sinks_;
  std::optional<monitor::EpochLoss> epoch_loss_;  // of the first rank
  std::string run_id_;
  int attempt_ = 0;
  std::optional<std::int64_t> resumed_step_;
  std::int64_t skipped_steps_ = 0;  // of step_: gradients that were not finite moved nothing
  std::int64_t step_ = 0, saved_step_ = -1, evaluated_step_ = -1;
  std::uint64_t position_ = 0;  // of the global sample order
  double seconds_per_step_ = 0;
  std::uint64_t device_memory_ = 0;  // in use when it was last asked for
};

}  // namespace trireme::train
