#include "measure/training_run.h"

#include <algorithm>
#include <array>
#include <optional>

#include "data/random_tokens.h"
#include "kernels/device.h"
#include "measure/device.h"
#include "measure/known_models.h"
#include "measure/model_work.h"
#include "measure/step_work.h"
#include "measure/timing.h"
#include "train/device.h"
#include "train/prediction.h"
#include "train/rates_here.h"
#include "train/trainer.h"

namespace trireme::measure {
namespace {

using Row = nlohmann::ordered_json;

constexpr std::uint64_t kTokens = 1 << 20;   // that are drawn; a run begins anew where they end
constexpr double kPeakFlopsPerS = 989.4e12;  // of an H100 or H200, dense bf16: NVIDIA's data sheet
constexpr const char* kHopper[] = {"H100", "H200"};

config::Plan plan_of(const TrainingRun& run, const std::filesystem::path& folder, int ranks) {
  const ModelConfig config = known_model(run.model, run.sequence);
  const ModelShape shape = shape_of(config);
  const bool is_gpt2 = std::holds_alternative<Gpt2Config>(config);
  Row yaml{{"name", run.model}, {"output_dir", (folder / "run").string()}};
  yaml["model"] = {{"family", is_gpt2 ? "gpt2" : "llama"},
                   {"hidden_size", shape.C},
                   {"num_layers", shape.L},
                   {"num_heads", shape.H},
                   {"num_key_value_heads", shape.K},
                   {"intermediate_size", shape.F},
                   {"max_position_embeddings", is_gpt2 ? std::get<Gpt2Config>(config).max_positions : run.sequence}};
  yaml["data"] = {{"path", (folder / "data").string()}, {"sequence_length", run.sequence}};
  yaml["training"] = {{"max_steps", run.warm_up + run.steps},
                      {"micro_batch_size", run.micro_batch},
                      {"gradient_accumulation_steps", run.accumulate},
                      {"device", train::uses_device(run.device, ranks) ? "cuda" : "cpu"},
                      {"mixed_precision", run.precision},
                      {"gradient_checkpointing", run.recompute},
                      {"learning_rate", 1e-4},
                      {"lr_scheduler", "constant"},
                      {"weight_decay", 0.1},
                      {"gradient_clipping", 1.0},
                      {"eval_interval", 0}};
  yaml["distributed"] = {{"strategy", run.strategy}};
  yaml["checkpoint"] = {{"save_interval", 0}, {"resume", "never"}};
  return config::parse_plan(yaml.dump(2), "bench", run.overrides);
}

std::optional<double> peak_of(const std::string& card) {
  const bool known = std::any_of(std::begin(kHopper), std::end(kHopper),
                                 [&](const char* name) { return card.find(name) != std::string::npos; });
  return known ? std::optional(kPeakFlopsPerS) : std::nullopt;
}

// What the Trainer tells, from outside: when each step ended, and what was in use then.
struct Observer {
  int device = -1;
  std::vector<double> ends;
  std::int64_t bytes_before = 0, planned_bytes = 0, peak_bytes = 0;  // before: with the driver's, without a run's
  double first_loss = 0, last_loss = 0;
  std::optional<train::Overlap> overlap;
  std::optional<double> predicted_s;  // of a step, where this machine's rates were measured

  void see(const monitor::StepRecord& record) {
    ends.push_back(seconds_since_boot());
    if (record.step == 1) first_loss = record.loss;
    last_loss = record.loss;
    // Nothing is allocated in a step but by libraries, in their first.
    if (device >= 0 && record.step > 2) return;
    peak_bytes = std::max(peak_bytes, device >= 0 ? in_use() : static_cast<std::int64_t>(record.memory_bytes));
  }
  std::int64_t in_use() const { return kernels::device_memory_in_use(device); }
  std::vector<double> seconds(std::int64_t warm_up) const {
    std::vector<double> steps;
    for (auto i = static_cast<std::size_t>(warm_up); i < ends.size(); ++i) steps.push_back(ends[i] - ends[i - 1]);
    return steps;
  }
};

std::string name_of(config::ElementType type) {
  return std::array{"fp32", "bf16", "fp16"}[static_cast<std::size_t>(type)];
}
std::string name_of(config::MixedPrecision precision) {
  return std::array{"fp32", "bf16", "fp16"}[static_cast<std::size_t>(precision)];
}

Row row_of(const TrainingRun& run, const config::Plan& plan, const Observer& seen, int ranks) {
  const Timing step = timing_of(seen.seconds(run.warm_up));
  const ModelShape shape = shape_of(known_model(run.model, run.sequence));
  const std::int64_t tokens_of_rank = run.sequence * run.micro_batch * run.accumulate;
  const auto speed = [&](double seconds) { return static_cast<double>(tokens_of_rank) / seconds; };
  Row row{{"system", "trireme"},
          {"model", run.model},
          {"gpus", seen.device >= 0 ? ranks : 0},
          {"ranks", ranks},
          {"card", card_name(seen.device >= 0)},
          {"sequence", run.sequence},
          {"micro_batch", run.micro_batch},
          {"accumulate", run.accumulate},
          {"tokens_per_step", tokens_of_rank * ranks},
          {"strategy", run.strategy},
          {"offload_optimizer", plan.distributed.offload_optimizer == config::Offload::cpu},
          {"offload_param", plan.distributed.offload_param == config::Offload::cpu},
          {"param_dtype", name_of(plan.training.mixed_precision)},
          {"master_dtype", name_of(plan.precision.master_dtype)},
          {"reduce_dtype", name_of(plan.precision.reduce_dtype)},
          {"grad_accum_dtype", name_of(plan.precision.grad_accum_dtype)},
          {"moment_dtype", name_of(plan.precision.moment_dtype)},
          {"optimizer", "adamw"},
          {"recompute", run.recompute},
          {"deterministic", plan.training.deterministic},
          {"clip", plan.training.gradient_clipping},
          {"steps", step.runs},
          {"warm_up", run.warm_up},
          {"tokens_per_s_per_gpu", speed(step.median)},
          {"tokens_per_s_per_gpu_spread", {speed(step.high), speed(step.low)}},
          {"peak_memory_bytes", seen.peak_bytes},
          {"memory_before_bytes", seen.bytes_before},
          {"planned_memory_bytes", seen.planned_bytes},
          {"first_step_s", seen.ends.front() - run.started},
          {"first_loss", seen.first_loss},
          {"last_loss", seen.last_loss},
          {"flops_per_token", shape.flops_per_token(run.sequence)}};
  if (seen.overlap) {
    row["exposed_communication"] = {{"step_s", seen.overlap->step_s},
                                    {"without_communication_s", seen.overlap->silent_s},
                                    {"communication_s", seen.overlap->communication_s},
                                    {"exposed_s", seen.overlap->exposed_s()}};
  }
  if (seen.predicted_s) row["predicted_step_s"] = *seen.predicted_s;
  if (const auto peak = peak_of(row["card"])) {
    row["peak_flops_per_s"] = *peak;
    row["mfu"] = speed(step.median) * shape.flops_per_token(run.sequence) / *peak;
  }
  return row;
}

// Of one rank by itself: what ranks exchange is not in it.
void add_floor(const TrainingRun& run, const config::Plan& plan, bool on_device, Row& row) {
  const ModelShape shape = shape_of(known_model(run.model, run.sequence));
  const BatchShape micro_batch{run.micro_batch, run.sequence};
  const StepRates rates = step_rates(measure_work(shape, {.micro_batch = micro_batch,
                                                          .on_device = on_device,
                                                          .products = true,
                                                          .attention = true,
                                                          .copy = true,
                                                          .deterministic = plan.training.deterministic,
                                                          .seconds = run.floor_s}));
  const auto bytes_of = [](config::ElementType type) { return type == config::ElementType::fp32 ? 4 : 2; };
  const UpdateBytes update{.sum = bytes_of(plan.precision.grad_accum_dtype),
                           .master = bytes_of(plan.precision.master_dtype),
                           .moment = bytes_of(plan.precision.moment_dtype),
                           .weights = plan.precision.master_dtype == config::ElementType::fp32 ? 2 : 0};
  const double seconds =
      floor_seconds(shape, micro_batch.tokens(), run.accumulate, size_of(DType::bf16), update, rates);
  row["floor_tokens_per_s_per_gpu"] = static_cast<double>(micro_batch.tokens() * run.accumulate) / seconds;
  row["floor_parts"] = {{"products_s", rates.products_s},
                        {"attention_s", rates.attention_s},
                        {"elementwise_bytes", elementwise_bytes(shape, micro_batch.tokens(), size_of(DType::bf16))},
                        {"update_bytes", update_bytes(shape, update)},
                        {"copy_bytes_per_s", rates.copy_bytes_per_s}};
}

}  // namespace

void prepare_training_run(const TrainingRun& run, int ranks, const std::filesystem::path& folder) {
  const ModelConfig config = known_model(run.model, run.sequence);
  const std::int64_t vocabulary = std::visit([](const auto& known) { return known.vocabulary; }, config);
  const std::int64_t step = run.sequence * run.micro_batch * run.accumulate * ranks;
  data::write_random_tokens(folder / "data", vocabulary, std::max(kTokens, static_cast<std::uint64_t>(step) + 1), 1);
}

Row measure_training(const TrainingRun& run, const std::filesystem::path& folder, comm::Communicator& comm,
                     int local_ranks) {
  const config::Plan plan = plan_of(run, folder, local_ranks);
  const bool on_device = plan.training.device == config::Device::cuda;
  Observer seen{.device = on_device ? 0 : -1};
  if (on_device) seen.bytes_before = seen.in_use();
  {
    train::Trainer trainer(plan, {.comm = &comm,
                                  .local_ranks = local_ranks,
                                  .console = false,
                                  .saves = false,
                                  .model = known_model(run.model, run.sequence),
                                  .on_step = [&](const monitor::StepRecord& record) { seen.see(record); }});
    seen.planned_bytes = trainer.engine().plan().bytes();
    trainer.run();
    seen.overlap = trainer.overlap();
    const schedule::Rates rates = train::rates_here(plan);
    if (!rates.source.empty()) seen.predicted_s = train::predict(trainer.engine().plan(), rates).timeline.step_s;
  }
  if (comm.rank() != 0) return {};
  Row row = row_of(run, plan, seen, comm.world_size());
  if (run.floor_s > 0) add_floor(run, plan, on_device, row);
  return row;
}

}  // namespace trireme::measure
