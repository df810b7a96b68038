#include "train/resolve.h"

#include <algorithm>
#include <limits>

#include "base/cpu.h"
#include "base/error.h"

namespace trireme::train {

namespace {

using config::Plan;

std::int64_t total_steps_of(const Plan& plan, std::int64_t global_batch, const DataFacts& data,
                            std::vector<std::string>& notices) {
  const auto batch = static_cast<std::uint64_t>(global_batch);
  if (plan.training.max_steps) {
    notices.push_back("the run ends after training.max_steps = " + std::to_string(*plan.training.max_steps) + " steps" +
                      (plan.training.num_epochs ? " (it wins over training.num_epochs)" : ""));
    return *plan.training.max_steps;
  }
  const auto epochs = static_cast<std::uint64_t>(plan.training.num_epochs.value_or(1));
  const std::uint64_t steps = data.num_samples * epochs / batch;
  if (steps == 0) {
    throw Error(2230, place_of(plan, "training.num_epochs"),
                "the data has " + std::to_string(data.num_samples) + " samples: " + std::to_string(epochs) +
                    " epochs are less than one step of " + std::to_string(batch) + " samples",
                "use a smaller global_batch_size or sequence_length, more text, or max_steps");
  }
  const std::uint64_t left = data.num_samples * epochs - steps * batch;
  notices.push_back(
      "the run ends after training.num_epochs = " + std::to_string(epochs) + " epochs = " + std::to_string(steps) +
      " steps" +
      (left > 0 ? "; the last " + std::to_string(left) + " samples do not fill a step and are left out" : ""));
  return static_cast<std::int64_t>(steps);
}

LlamaConfig llama_of(const config::ModelPlan& m, std::int64_t vocabulary) {
  return {.vocabulary = vocabulary,
          .hidden_size = m.hidden_size,
          .intermediate_size = m.intermediate_size,
          .num_layers = m.num_layers,
          .num_heads = m.num_heads,
          .num_key_value_heads = m.num_key_value_heads,
          .head_dim = m.head_dim,
          .max_positions = m.max_position_embeddings,
          .rope = {.theta = m.rope_theta, .scaling = {}},
          .rms_norm_eps = m.rms_norm_eps,
          .init_std = m.initializer_range,
          .tie_word_embeddings = m.tie_word_embeddings,
          .attention_dropout = m.attention_dropout,
          .windows = {},
          .windowed_rope = {}};
}

Gpt2Config gpt2_of(const config::ModelPlan& m, std::int64_t vocabulary) {
  return {.vocabulary = vocabulary,
          .hidden_size = m.hidden_size,
          .intermediate_size = m.intermediate_size,
          .num_layers = m.num_layers,
          .num_heads = m.num_heads,
          .max_positions = m.max_position_embeddings,
          .layer_norm_eps = m.rms_norm_eps,
          .init_std = m.initializer_range,
          .tie_word_embeddings = m.tie_word_embeddings,
          .embedding_dropout = m.hidden_dropout,
          .attention_dropout = m.attention_dropout,
          .residual_dropout = m.hidden_dropout};
}

const ModelConfig& check_vocabulary(const Plan& plan, const DataFacts& data, const ModelConfig& model) {
  const std::int64_t vocabulary = std::visit([](const auto& known) { return known.vocabulary; }, model);
  if (vocabulary < data.vocabulary) {
    throw Error(2240, place_of(plan, "model.path"),
                "the model has a vocabulary of " + std::to_string(vocabulary) + ", but the data's tokenizer has " +
                    std::to_string(data.vocabulary) + " ids",
                "prepare the data with the model's own tokenizer: trireme data prepare --tokenizer " + plan.model.path);
  }
  return model;
}

ModelConfig model_of(const Plan& plan, const DataFacts& data) {
  const config::ModelPlan& m = plan.model;
  if (m.vocab_size && *m.vocab_size < data.vocabulary) {
    throw Error(2240, place_of(plan, "model.vocab_size"),
                "is " + std::to_string(*m.vocab_size) + ", but the data's tokenizer has " +
                    std::to_string(data.vocabulary) + " ids",
                "leave it out, or set it to at least " + std::to_string(data.vocabulary));
  }
  const std::int64_t vocabulary = m.vocab_size.value_or(data.vocabulary);
  if (m.family == "gpt2") return gpt2_of(m, vocabulary);
  return llama_of(m, vocabulary);
}

schedule::Sharding sharding_of(config::Strategy strategy) {
  using enum config::Strategy;
  switch (strategy) {
    case ddp:
    case no_shard: return {};
    case zero1: return {.optimizer = true};
    case zero2: return {.gradients = true, .optimizer = true};
    case zero3:
    case full_shard:
    case hybrid_shard: return {.parameters = true, .gradients = true, .optimizer = true};
    case shard_grad_op: return {.parameters = true, .gradients = true, .optimizer = true, .gather_once = true};
  }
  return {};
}

Wrapping wrapping_of(const config::DistributedPlan& d) {
  const std::int64_t bound = std::min(d.bucket_size.value_or(std::numeric_limits<std::int64_t>::max()),
                                      d.allgather_bucket_size.value_or(std::numeric_limits<std::int64_t>::max()));
  return {.policy = d.auto_wrap,
          .min_elements = d.min_num_params,
          .names = d.wrap_names,
          .max_group_elements = d.bucket_size || d.allgather_bucket_size ? bound : 0};
}

void check_number_of_ranks(const Plan& plan, int world_size) {
  const std::optional<std::int64_t> wanted = plan.distributed.num_processes;
  if (!wanted || *wanted == world_size) return;
  throw Error(2212, place_of(plan, "distributed.num_processes"),
              "is " + std::to_string(*wanted) + ", but there are " + std::to_string(world_size) + " ranks",
              "start as many: `trireme launch --nproc-per-node " + std::to_string(*wanted) + "`, or leave it out");
}

// "1 x 6, 2 x 3, 3 x 2 or 6 x 1".
std::string factorings_of(int world_size) {
  std::string text;
  for (int replicas = 1; replicas <= world_size; ++replicas) {
    if (world_size % replicas != 0) continue;
    const char* before = replicas == 1 ? "" : replicas == world_size ? " or " : ", ";
    text += before + std::to_string(replicas) + " x " + std::to_string(world_size / replicas);
  }
  return text;
}

// hybrid_shard without sizes: the ranks of a machine share a set of slices, as PyTorch has it.
int machines_of(const Plan& plan, const Ranks& ranks, std::vector<std::string>& notices) {
  const std::string place = place_of(plan, "distributed.strategy");
  if (ranks.count % ranks.per_machine != 0) {
    throw Error(2211, place,
                "is hybrid_shard, which shards among the ranks of a machine, but " + std::to_string(ranks.count) +
                    " ranks are not a multiple of the " + std::to_string(ranks.per_machine) + " on this one",
                "set distributed.dp_shard, or start as many ranks on each machine");
  }
  const int machines = ranks.count / ranks.per_machine;
  notices.push_back(place + " hybrid_shard shards among the " + std::to_string(ranks.per_machine) +
                    " ranks of a machine" +
                    (machines == 1 ? "; there is one machine, so it equals full_shard"
                                   : ", and " + std::to_string(machines) + " machines are replicas"));
  return machines;
}

// How many sets of ranks hold all slices.
int replicas_of(const Plan& plan, const Ranks& ranks, std::vector<std::string>& notices) {
  const int world_size = ranks.count;
  check_number_of_ranks(plan, world_size);
  const config::DistributedPlan& d = plan.distributed;
  const bool hybrid = d.strategy == config::Strategy::hybrid_shard;
  if (hybrid && !d.dp_replicate && !d.dp_shard) return machines_of(plan, ranks, notices);
  const std::string place = place_of(plan, d.dp_shard ? "distributed.dp_shard" : "distributed.dp_replicate");
  if (!sharding_of(d.strategy).optimizer) {
    // One set a rank, whatever else is said.
    if (d.dp_shard.value_or(1) == 1 && d.dp_replicate.value_or(world_size) == world_size) return world_size;
    throw Error(2211, place, "is given, but this strategy shards nothing",
                "choose distributed.strategy zero1, zero2, full_shard or hybrid_shard, or leave it out");
  }
  const std::int64_t given = d.dp_replicate.value_or(1) * d.dp_shard.value_or(1);
  const bool both = d.dp_replicate && d.dp_shard;
  if (world_size % given != 0 || (both && given != world_size)) {
    const std::string product =
        both ? std::to_string(*d.dp_replicate) + " x dp_shard " + std::to_string(*d.dp_shard) + " = " : "";
    throw Error(2211, place,
                (both ? "dp_replicate " + product : "is ") + std::to_string(given) + ", but there are " +
                    std::to_string(world_size) + " ranks",
                "dp_replicate x dp_shard may be " + factorings_of(world_size));
  }
  const std::int64_t replicate = d.dp_replicate ? *d.dp_replicate : d.dp_shard ? world_size / *d.dp_shard : 1;
  return static_cast<int>(replicate);
}

optim::OptimizerOptions optimizer_of(const Plan& plan, const std::optional<ResumeFacts>& resume) {
  const config::TrainingPlan& training = plan.training;
  const optim::OptimizerOptions options{.kind = training.optimizer,
                                        .beta1 = training.adam_beta1,
                                        .beta2 = training.adam_beta2,
                                        .eps = training.adam_eps,
                                        .weight_decay = training.weight_decay,
                                        .momentum = training.momentum,
                                        .nesterov = training.nesterov,
                                        .initial_accumulator_value = training.initial_accumulator_value};
  const std::string name(optim::optimizer_of(options).name);
  if (resume && resume->optimizer != name) {
    throw Error(2223, place_of(plan, "training.optimizer"),
                "is " + name + ", but the checkpoint to resume from has the state of " + resume->optimizer,
                "a run keeps its optimizer: set it back (sgd: also whether momentum is 0), or start anew with "
                "checkpoint.resume=never");
  }
  return options;
}

DType dtype_of_plan(config::ElementType type) {
  switch (type) {
    case config::ElementType::fp32: return DType::f32;
    case config::ElementType::bf16: return DType::bf16;
    case config::ElementType::fp16: return DType::f16;
  }
  return DType::f32;
}

optim::LossScaleOptions loss_scale_of(const Plan& plan) {
  const config::PrecisionPlan& p = plan.precision;
  if (plan.training.mixed_precision != config::MixedPrecision::fp16) return {.fixed = 1};
  return {.fixed = p.loss_scale.value_or(0),
          .initial_power = p.initial_scale_power,
          .window = p.loss_scale_window,
          .hysteresis = p.hysteresis,
          .consecutive_hysteresis = p.consecutive_hysteresis,
          .minimum = p.min_loss_scale};
}

optim::Law law_of(const Plan& plan, std::int64_t run_steps) {
  const config::TrainingPlan& training = plan.training;
  const config::LawPlan& law = plan.law;
  using enum config::LearningRateLaw;
  const bool has_end = training.lr_scheduler == warmup_decay || training.lr_scheduler == warmup_cosine;
  return {.kind = training.lr_scheduler,
          .peak = training.learning_rate,
          .minimum = training.min_learning_rate,
          .warmup_steps = training.warmup_steps,
          .total_steps = has_end ? law.lr_total_steps.value_or(run_steps) : run_steps,
          .warmup = {.type = law.warmup_type,
                     .minimum = law.warmup_min_learning_rate,
                     .minimum_ratio = law.warmup_min_ratio,
                     .cosine_ratio = law.cos_min_ratio},
          .cycle = {.minimum = law.cycle_min_learning_rate.value_or(0),
                    .first_steps = law.cycle_first_step_size,
                    .second_steps = law.cycle_second_step_size,
                    .decay_steps = law.decay_step_size,
                    .decay_rate = law.decay_lr_rate},
          .range_test = {.minimum = law.range_test_min_learning_rate,
                         .step_size = law.range_test_step_size,
                         .rate = law.range_test_step_rate,
                         .staircase = law.range_test_staircase}};
}

DType compute_dtype_of(config::MixedPrecision precision) {
  switch (precision) {
    case config::MixedPrecision::bf16: return DType::bf16;
    case config::MixedPrecision::fp16: return DType::f16;
    case config::MixedPrecision::no: return DType::f32;
  }
  return DType::f32;
}

// Rows of logits at once: enough to fill a device, and few sums of the head's gradient, which is read and written for
// each.
constexpr std::int64_t kLossChunkOnDevices = 4096;

}  // namespace

ResolvedRun resolve(const Plan& plan, const DataFacts& data, const Ranks& ranks,
                    const std::optional<ResumeFacts>& resume, const ModelConfig* model) {
  TRIREME_CHECK(model != nullptr || plan.model.path.empty(), "the folder of model.path must be read first");
  ResolvedRun run;
  run.model = model != nullptr ? check_vocabulary(plan, data, *model) : model_of(plan, data);
  std::visit(
      [&](auto& known) {
        const bool on_device = plan.training.device == config::Device::cuda;
        known.loss_chunk_tokens =
            plan.training.loss_chunk_tokens.value_or(on_device ? kLossChunkOnDevices : known.loss_chunk_tokens);
        known.deterministic = plan.training.deterministic;
      },
      run.model);
  run.compute_dtype = compute_dtype_of(plan.training.mixed_precision);
  run.freeze = plan.training.freeze;
  run.recompute_wide = plan.training.gradient_checkpointing == config::Recompute::selective;
  const BatchSizes batch = batch_of(plan, ranks, resume, run.notices);
  const int world_size = ranks.count;
  run.global_batch_size = batch.global_size();
  run.tokens_per_step = run.global_batch_size * plan.data.sequence_length;
  run.total_steps = total_steps_of(plan, run.global_batch_size, data, run.notices);
  run.engine = {.device = plan.training.device == config::Device::cuda ? ranks.local_rank : -1,
                .ranks_in_reach = ranks.in_reach,
                .host_threads = std::max(1, count_cpus() / std::max(1, ranks.per_machine)),
                .micro_batch = {batch.micro_batch_size, plan.data.sequence_length},
                .split = {static_cast<int>(batch.num_micro_batches), world_size},
                .reduce_each_micro_batch = plan.training.reduce_each_micro_batch,
                .wrapping = wrapping_of(plan.distributed),
                .sharding = sharding_of(plan.distributed.strategy),
                .replicas = replicas_of(plan, ranks, run.notices),
                .persistence_threshold = plan.distributed.persistence_threshold,
                .gather_ahead = plan.distributed.gather_ahead,
                .reuse_distance = plan.distributed.reuse_distance,
                .max_live = plan.distributed.max_live_parameters,
                .gradient_slots = plan.distributed.gradient_slots,
                .overlap = plan.distributed.overlap_comm,
                .recompute_every =
                    plan.training.gradient_checkpointing == config::Recompute::full ? plan.training.recompute_every : 0,
                .offload_optimizer = plan.distributed.offload_optimizer == config::Offload::cpu,
                .offload_parameters = plan.distributed.offload_param == config::Offload::cpu,
                .offload_inputs = plan.training.cpu_checkpointing,
                .measures = plan.monitor.wall_clock_breakdown,
                .gradient_clipping = plan.training.gradient_clipping,
                .optimizer = optimizer_of(plan, resume),
                .loss_scale = loss_scale_of(plan),
                .reduce_dtype = dtype_of_plan(plan.precision.reduce_dtype),
                .accumulator_dtype = dtype_of_plan(plan.precision.grad_accum_dtype),
                .master_dtype = dtype_of_plan(plan.precision.master_dtype),
                .moment_dtype = dtype_of_plan(plan.precision.moment_dtype),
                .rounding_seed = static_cast<std::uint64_t>(plan.training.seed),
                .gradient_factor = plan.precision.gradient_allreduce_op == config::GradientOp::sum
                                       ? static_cast<double>(world_size)
                                       : 1.0,
                .skips_non_finite = plan.precision.nonfinite_gradients == config::NonFiniteGradients::skip};
  run.engine.adds_in_place = run.engine.device >= 0;
  const bool in_float = engine::may_add_in_place(run.engine) && run.engine.accumulator_dtype == DType::f32;
  std::visit([&](auto& known) { known.float_gradients = in_float; }, run.model);
  run.law = law_of(plan, run.total_steps);
  return run;
}

}  // namespace trireme::train
