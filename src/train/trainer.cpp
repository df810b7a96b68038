#include "train/trainer.h"
#include "train/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/failpoint.h"
#include "base/file.h"
#include "base/log.h"
#include "data/tokenizer.h"
#include "kernels/device.h"
#include "models/model.h"
#include "train/data_sets.h"
#include "train/freeze.h"

namespace trireme::train {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// step_seconds: of the whole step, what the loop around the engine takes too.
std::vector<std::pair<std::string, double>> breakdown_of(const engine::StepReport& report, double step_seconds) {
  if (!report.seconds) return {};
  const engine::StepReport::Seconds& s = *report.seconds;
  return {{"forward", 1e3 * s.forward},
          {"recompute", 1e3 * s.recompute},
          {"backward", 1e3 * s.backward},
          {"step", 1e3 * s.step},
          {"gather", 1e3 * s.gather},
          {"reduce", 1e3 * s.reduce},
          {"copy", 1e3 * s.copy},
          {"waiting", 1e3 * s.waiting},
          {"outside", 1e3 * std::max(0.0, step_seconds - s.computing - s.waiting)}};
}

std::optional<ResumeFacts> facts_of(const checkpoint::Reader* reader) {
  if (reader == nullptr) return std::nullopt;
  const checkpoint::Manifest& manifest = reader->manifest();
  return ResumeFacts{manifest.num_micro_batches, manifest.micro_batch_size, manifest.optimizer};
}

// The batches of a step with the keys of their dropout, which they point to.
class KeyedBatches {
 public:
  // first: place of the step's first sample among all of the run.
  KeyedBatches(const std::vector<Batch>& rounds, std::uint64_t seed, std::int64_t step, std::uint64_t first,
               const MicroBatchSplit& split, int data_rank)
      : rounds_(rounds), keys_(rounds.size()) {
    for (std::size_t k = 0; k < rounds_.size(); ++k) {
      const std::int64_t B = rounds_[k].shape.batch;
      const auto begin = static_cast<std::uint64_t>(split.micro_batch(static_cast<int>(k), data_rank) * B);
      for (std::int64_t b = 0; b < B; ++b) {
        keys_[k].push_back(dropout_key(seed, step, first + begin + static_cast<std::uint64_t>(b)));
      }
      rounds_[k].dropout_keys = keys_[k].data();
    }
  }
  const std::vector<Batch>& rounds() const { return rounds_; }

 private:
  std::vector<Batch> rounds_;
  std::vector<std::vector<std::uint64_t>> keys_;
};

}  // namespace

static Ranks ranks_of(const TrainerOptions& options) {
  Ranks ranks(options.comm->world_size(), "", options.local_ranks);
  ranks.local_rank = options.local_rank < 0 ? options.comm->rank() % ranks.per_machine : options.local_rank;
  return ranks;
}

Trainer::Trainer(const config::Plan& plan, const TrainerOptions& options)
    : plan_(with_device(plan, ranks_of(options))),
      options_(options),
      comm_(*options.comm),
      train_data_(open_training_data(plan)) {
  kernels::set_num_threads(plan_.training.compute_threads);
  Ranks ranks = ranks_of(options_);
  check_same_device(plan_, comm_);
  check_device(plan_, ranks);
  ranks.in_reach = ranks_in_reach(plan_, ranks, comm_);
  resumed_step_ = agree_on_checkpoint();
  model_ = open_model_source(plan_);
  run_ = resolve(plan_, {train_data_.vocabulary(), train_data_.num_samples()}, ranks, facts_of(resumed_.get()),
                 model_           ? &model_->config.model
                 : options_.model ? &*options_.model
                                  : nullptr);
  if (model_) check_tokenizer(*model_, train_data_, run_.notices);
  chain_ = make_training_chain(run_, run_.notices);
  if (run_.engine.device >= 0) choose_products();
  if (plan_.monitor.exposed_communication > 0) overlap_ = measure_overlap_of_run();
  engine_ = std::make_unique<engine::Engine>(chain_, run_.engine, comm_);
  if (resumed_ != nullptr) {
    load(*resumed_);
    resumed_.reset();
  } else if (model_) {
    load_weights(checkpoint::ModelWeights(model_->folder, chain_.parameters), engine_->state());
  } else {
    engine_->state().initialize(plan_.training.seed);
  }
  engine_->refresh_weights();
  loader_ =
      std::make_unique<data::Loader>(train_data_, sample_order(), loader_options(plan_, run_.engine, comm_.rank()));
  loader_->seek(position_);
  held_out_ = open_evaluation_data(plan_, train_data_);
}

Trainer::~Trainer() = default;

// Before the engine takes its memory.
void Trainer::choose_products() {
  kernels::use_device(run_.engine.device);
  const kernels::Stream stream;
  const kernels::OnStream on(stream);
  ProductWays known;
  if (resumed_ != nullptr && !resumed_->manifest().products.empty()) {
    known = parse_product_ways(resumed_->manifest().products, "the checkpoint's manifest");
  }
  products_ = agree_on_products(products_of(chain_, run_.engine.micro_batch), known, comm_, run_.notices);
  if (!known.library.empty() && known.library != products_.library) {
    run_.notices.push_back("the checkpoint was made with " + known.library + ", not " + products_.library +
                           ": sums may differ in the last bit");
  }
}

// On the batches of the first step.
Overlap Trainer::measure_overlap_of_run() {
  data::LoaderOptions options = loader_options(plan_, run_.engine, comm_.rank());
  options.num_workers = 0;
  const data::StepBatches batches = data::Loader(train_data_, sample_order(), options).next();
  return measure_overlap(chain_, run_.engine, comm_, batches.rounds, plan_.monitor.exposed_communication);
}

void Trainer::begin() {
  begin_attempt();
  if (!is_first_rank()) return;
  const auto& folder = plan_.output_dir;
  write_file_atomic(folder / "config.resolved.yaml", config::to_yaml(plan_));
  data::save_tokenizer(train_data_.tokenizer_folder().string(), folder / "tokenizer");
  if (model_) keep_model_files(model_->folder, folder);
  sinks_.push_back(monitor::make_jsonl(folder / "metrics.jsonl", step_));
  epoch_loss_.emplace(train_data_.num_samples(), static_cast<std::uint64_t>(run_.global_batch_size));
  epoch_loss_->restore(folder / "metrics.jsonl", step_);
  for (const config::Receiver receiver : plan_.monitor.report_to) {
    switch (receiver) {
      case config::Receiver::tensorboard:
        sinks_.push_back(monitor::make_tensorboard(folder / "tensorboard", step_, config::to_yaml(plan_)));
    }
  }
  if (options_.console) sinks_.push_back(monitor::make_console(plan_.monitor.log_interval));
  for (const std::string& notice : plan_.notices) log::info(notice);
  for (const std::string& notice : run_.notices) log::info(notice);
  for (const std::string& notice : notices_of(train_data_)) log::info(notice);
  nlohmann::json event{{"event", resumed_step_ ? "resume" : "start"},
                       {"run_id", run_id_},
                       {"attempt", attempt_},
                       {"step", step_},
                       {"total_steps", run_.total_steps},
                       {"world_size", comm_.world_size()},
                       {"num_micro_batches", run_.engine.split.num_micro_batches},
                       {"parameters", chain_.num_parameters()},
                       {"tokens_per_step", run_.tokens_per_step},
                       {"compute_dtype", std::string(to_string(run_.compute_dtype))},
                       {"kernel_level", kernel_level_of(plan_)}};
  log::info(fmt::format("{} step {} of {}: {} parameters, {} kernels in {}, {} rank{}, {} tokens a step",
                        resumed_step_ ? "resuming after" : "starting at", step_, run_.total_steps,
                        chain_.num_parameters(), event["kernel_level"].get<std::string>(),
                        to_string(run_.compute_dtype), comm_.world_size(), comm_.world_size() == 1 ? "" : "s",
                        run_.tokens_per_step));
  emit(event);
  if (overlap_) tell_overlap(*overlap_);
}

RunResult Trainer::run() {
  begin();
  while (step_ < run_.total_steps) {
    failpoint("train.step", comm_.rank());
    const Clock::time_point start = Clock::now();
    const data::StepBatches batches = loader_->next();
    if (options_.on_batches) options_.on_batches(batches, step_ + 1);
    const KeyedBatches keyed(batches.rounds, plan_.training.seed, step_ + 1, position_, run_.engine.split,
                             comm_.rank());
    const std::int64_t good_step = step_ - skipped_steps_ + 1;
    const double learning_rate = optim::learning_rate(run_.law, good_step);
    const engine::StepReport report = engine_->step(
        keyed.rounds(), {.learning_rate = learning_rate,
                         .step = good_step,
                         .run_step = step_ + 1,
                         .stop_requested = options_.stop != nullptr && options_.stop->load(std::memory_order_relaxed),
                         .record_spans = step_ + 1 == plan_.monitor.trace_step});
    ++step_;
    position_ += static_cast<std::uint64_t>(run_.global_batch_size);
    if (report.non_finite) tell_skip(report);
    const monitor::StepRecord record = record_of(report, learning_rate, seconds_since(start));
    for (const auto& sink : sinks_) sink->step(record);
    tell_epoch(record);
    if (!report.spans.empty()) write_trace(report);
    if (options_.on_step) options_.on_step(record);

    const bool last = step_ == run_.total_steps;
    const std::int64_t eval_interval = plan_.training.eval_interval, save_interval = plan_.checkpoint.save_interval;
    if (!last && eval_interval > 0 && step_ % eval_interval == 0) evaluate();
    if (!last && report.stop_requested) {
      save();
      emit_end("stop");
      if (is_first_rank())
        log::info(fmt::format("stopped on request after step {}; the same command goes on from there", step_));
      return {step_, true};
    }
    if (!last && save_interval > 0 && step_ % save_interval == 0) save_or_go_on();
  }
  finish();
  return {step_, false};
}

void Trainer::finish() {
  save();
  evaluate();
  emit_end("done");
}

void Trainer::tell_skip(const engine::StepReport& report) {
  ++skipped_steps_;
  if (!is_first_rank()) return;
  const engine::NonFinite& found = *report.non_finite;
  const double next = engine_->loss_scale().scale;
  log::warn(fmt::format(
      "step {} is skipped: {}{}", step_, to_string(found),
      next == report.loss_scale ? std::string() : fmt::format("; loss scale {} -> {}", report.loss_scale, next)));
  emit({{"event", "skip"},
        {"step", step_},
        {"tensor", found.tensor},
        {"rank", found.rank},
        {"micro_batch", found.micro_batch},
        {"loss_scale", report.loss_scale},
        {"next_loss_scale", next},
        {"skipped_steps", skipped_steps_}});
}

void Trainer::tell_epoch(const monitor::StepRecord& record) {
  if (!epoch_loss_) return;
  const std::optional<double> loss = record.skipped ? std::nullopt : std::optional(record.loss);
  const auto report = epoch_loss_->add(record.step, loss, record.step == record.total_steps);
  if (!report) return;
  log::info(fmt::format("epoch {} ends with step {}: mean loss {:.4f} over {} step{}", report->epoch, record.step,
                        report->mean_loss, report->steps, report->steps == 1 ? "" : "s"));
  emit({{"event", "epoch"},
        {"step", record.step},
        {"epoch", report->epoch},
        {"loss", report->mean_loss},
        {"steps", report->steps}});
}

// With what tells which tokens the run has consumed.
void Trainer::emit_end(const char* name) {
  emit({{"event", name},
        {"step", step_},
        {"data_position", position_},
        {"seed", plan_.training.seed},
        {"sequence_length", plan_.data.sequence_length},
        {"document_borders", plan_.data.document_borders},
        {"packing", plan_.data.packing == config::Packing::padded ? "padded" : "packed"},
        {"split", plan_.data.split},
        {"max_samples", plan_.data.max_samples.value_or(0)},
        {"shuffle", plan_.data.shuffle}});
}

// The driver takes its time to tell: asked where the console does, and at first.
std::uint64_t Trainer::device_memory() {
  const int device = run_.engine.device;
  if (device < 0) return 0;
  if (device_memory_ == 0 || step_ % plan_.monitor.log_interval == 0) {
    device_memory_ = static_cast<std::uint64_t>(kernels::device_memory_in_use(device));
  }
  return device_memory_;
}

monitor::StepRecord Trainer::record_of(const engine::StepReport& report, double learning_rate, double seconds) {
  // A slow first step should not spoil the time left; ten steps of memory smooth it.
  seconds_per_step_ = seconds_per_step_ == 0 ? seconds : 0.9 * seconds_per_step_ + 0.1 * seconds;
  const bool padded = plan_.data.packing == config::Packing::padded;
  const std::int64_t tokens = padded ? report.valid_tokens : run_.tokens_per_step;
  return {.step = step_,
          .total_steps = run_.total_steps,
          .epoch = static_cast<double>(position_) / static_cast<double>(train_data_.num_samples()),
          .loss = report.loss,
          .learning_rate = learning_rate,
          .gradient_norm = report.gradient_norm,
          .clipped_gradient_norm = report.gradient_norm * report.clip_factor,
          .skipped = report.non_finite.has_value(),
          .skipped_steps = skipped_steps_,
          .loss_scale = report.loss_scale,
          .tokens_per_s = static_cast<double>(tokens) / seconds,
          .step_seconds = seconds,
          .data_wait_seconds = loader_->last_wait_seconds(),
          .tokens = position_ * static_cast<std::uint64_t>(plan_.data.sequence_length),
          .memory_bytes = monitor::resident_bytes(),
          .device_memory_bytes = device_memory(),
          .seconds_left = seconds_per_step_ * static_cast<double>(run_.total_steps - step_),
          .breakdown_ms = breakdown_of(report, seconds)};
}

void Trainer::emit(const nlohmann::json& event) {
  for (const auto& sink : sinks_) sink->event(event);
}

}  // namespace trireme::train
