// The Trainer's saving and resuming: which checkpoint all ranks agree on, what goes into one, what comes out.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

#include "base/failpoint.h"
#include "base/log.h"
#include "comm/collectives.h"
#include "train/device.h"
#include "train/freeze.h"
#include "train/trainer.h"

namespace trireme::train {

namespace {

std::string new_run_id() {
  std::random_device device;
  std::string id;
  for (int i = 0; i < 32; ++i) id += "0123456789abcdef"[device() % 16];
  return id;
}

bool all_ranks(comm::Communicator& comm, bool mine) {
  return std::ranges::min(comm::gathered(comm, static_cast<char>(mine ? 1 : 0))) != 0;
}

}  // namespace

std::optional<std::int64_t> Trainer::agree_on_checkpoint() {
  if (plan_.checkpoint.resume == config::Resume::never) return std::nullopt;
  // Rank 0 looks, all ranks try what it found, newest first: a step counts only when every rank can read it.
  nlohmann::json found{{"steps", nlohmann::json::array()}, {"rejected", nlohmann::json::array()}};
  if (is_first_rank()) {
    std::vector<std::string> rejected;
    for (const auto& candidate : checkpoint::list(checkpoints(), &rejected)) {
      found["steps"].push_back({candidate.step, candidate.folder.string()});
    }
    found["rejected"] = rejected;
  }
  found = nlohmann::json::parse(comm::broadcast_text(comm_, found.dump()));
  std::vector<std::string> reasons = found["rejected"];
  for (const auto& [step, folder] : found["steps"].get<std::vector<std::pair<std::int64_t, std::string>>>()) {
    std::string reason;
    try {
      resumed_ = std::make_unique<checkpoint::Reader>(folder);
    } catch (const Error& error) {
      resumed_.reset();
      reason = error.what();
    }
    if (all_ranks(comm_, resumed_ != nullptr)) {
      for (const std::string& text : reasons) log::warn("checkpoint passed over: " + text);
      return step;
    }
    reasons.push_back(reason.empty() ? folder + ": another rank cannot read it" : reason);
  }
  resumed_.reset();
  if (!reasons.empty()) {
    throw Error(5050, checkpoints().string(), "holds checkpoints, but no valid one; the last reason: " + reasons.back(),
                "a run never starts from zero over them by itself: mend or move them, or say checkpoint.resume=never");
  }
  if (plan_.checkpoint.resume == config::Resume::must) {
    throw Error(5051, checkpoints().string(), "checkpoint.resume is must, but there is no checkpoint",
                "use checkpoint.resume=auto to start anew, or check output_dir");
  }
  return std::nullopt;
}

void Trainer::load(const checkpoint::Reader& reader) {
  const checkpoint::Manifest& manifest = reader.manifest();
  if (manifest.data_digest != train_data_.digest()) {
    throw Error(4040, plan_.data.path.string(),
                "is not the data that the checkpoint at step " + std::to_string(manifest.step) +
                    " was trained on (digest " + train_data_.digest() + ", not " + manifest.data_digest + ")",
                "point data.path at the data of that run, or start anew with checkpoint.resume=never");
  }
  if (manifest.plan_digest != config::numeric_digest(plan_)) {
    run_.notices.push_back(
        "the plan differs from the checkpoint's in values that decide numbers: the curve goes on, the bits do not");
  }
  if (manifest.kernel_level != kernel_level_of(plan_) || manifest.compute_threads != plan_.training.compute_threads) {
    run_.notices.push_back("the checkpoint was made with " + manifest.kernel_level + " kernels and " +
                           std::to_string(manifest.compute_threads) +
                           " compute threads: sums may differ in the last bit");
  }
  check_frozen(reader.manifest(), chain_, engine_->state());
  engine_->state().for_each_piece([&](const engine::ModelState::HeldPiece& piece) {
    reader.read(engine_->state().prefix_of(piece.kind) + piece.tensor.name, piece.tensor.shape, piece.box.row_begin,
                piece.box.row_end, piece.box.column_begin, piece.box.column_end, piece.data, piece.row_stride);
  });
  step_ = saved_step_ = manifest.step;
  skipped_steps_ = manifest.step - manifest.good_steps;
  // A run that scaled nothing, or by a fixed scale, has found none.
  if (run_.engine.loss_scale.fixed == 0 && manifest.loss_scale_hysteresis > 0) {
    engine_->set_loss_scale({manifest.loss_scale, manifest.loss_scale_good_steps,
                             std::min(manifest.loss_scale_hysteresis, run_.engine.loss_scale.hysteresis)});
  }
  position_ = manifest.data_position;
  run_id_ = manifest.run_id;
}

void Trainer::begin_attempt() {
  nlohmann::json start;
  if (is_first_rank()) {
    if (run_id_.empty()) run_id_ = new_run_id();
    start = {{"run_id", run_id_}, {"attempt", checkpoint::begin_attempt(checkpoints(), run_id_, step_)}};
  }
  start = nlohmann::json::parse(comm::broadcast_text(comm_, start.dump()));
  run_id_ = start["run_id"];
  attempt_ = start["attempt"];
}

checkpoint::Manifest Trainer::manifest() const {
  checkpoint::Manifest manifest;
  manifest.run_id = run_id_;
  manifest.attempt = attempt_;
  manifest.step = step_;
  manifest.plan_digest = config::numeric_digest(plan_);
  manifest.plan_yaml = config::to_yaml(plan_);
  manifest.data_digest = train_data_.digest();
  manifest.tokenizer_digest = train_data_.tokenizer_digest();
  manifest.data_position = position_;
  manifest.num_micro_batches = run_.engine.split.num_micro_batches;
  manifest.micro_batch_size = run_.engine.micro_batch.batch;
  manifest.compute_threads = plan_.training.compute_threads;
  manifest.optimizer = optim::optimizer_of(run_.engine.optimizer).name;
  manifest.kernel_level = kernel_level_of(plan_);
  if (!products_.library.empty()) manifest.products = to_json_text(products_);
  manifest.world_size = comm_.world_size();
  manifest.good_steps = step_ - skipped_steps_;
  manifest.loss_scale = engine_->loss_scale().scale;
  if (run_.engine.loss_scale.fixed == 0) {
    manifest.loss_scale_good_steps = engine_->loss_scale().good_steps;
    manifest.loss_scale_hysteresis = engine_->loss_scale().hysteresis;
  }
  return manifest;
}

namespace {

// A peer that is gone, or a job that is broken off, is no matter of the checkpoint.
bool is_of_peers(const Error& error) {
  return error.code() == 1101 || error.code() == 1102;
}

}  // namespace

// Where ranks hold slices, all hand them over, and none goes on before it knows whether the checkpoint is there.
void Trainer::save() {
  if (saved_step_ == step_ || !options_.saves) return;
  engine_->drain();
  StateReader state(*engine_, chain_);
  std::optional<Error> failure;
  if (is_first_rank()) {
    try {
      write_checkpoint(state);
    } catch (const Error& error) {
      if (is_of_peers(error)) throw;
      failure = error;
    } catch (const std::exception& error) {
      failure = Error(5012, checkpoints().string(), std::string("cannot save: ") + error.what());
    }
  }
  if (engine_->plan().updates_slices()) {
    state.read_the_rest();
    const std::string told = comm::broadcast_text(comm_, failure ? failure->what() : "");
    if (!failure && !told.empty()) failure = Error(5012, "rank 0", "could not save: " + told);
  }
  if (failure) throw *failure;
  saved_step_ = step_;
}

void Trainer::write_checkpoint(StateReader& state) {
  const auto folder = checkpoint::save(checkpoints(), manifest(), state.tensors());
  log::info(fmt::format("checkpoint of step {} saved in {}", step_, folder.string()));
  emit({{"event", "save"}, {"step", step_}, {"folder", folder.string()}});
  try {
    checkpoint::retain(checkpoints(), plan_.checkpoint.keep, resumed_step_);
  } catch (const std::exception& error) {
    log::warn(std::string("old checkpoints stay: ") + error.what());
  }
}

void Trainer::save_or_go_on() {
  try {
    save();
  } catch (const Error& error) {
    if (is_of_peers(error)) throw;
    // A full disk in mid-run costs a checkpoint, not the run: nothing half-written is left, the next interval tries
    // again.
    log::error(std::string("no checkpoint at step ") + std::to_string(step_) + ", training goes on: " + error.what());
    emit({{"event", "save_failed"}, {"step", step_}, {"error", error.what()}});
    saved_step_ = -1;
  }
}

}  // namespace trireme::train
