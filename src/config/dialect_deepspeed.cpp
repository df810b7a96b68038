// DeepSpeed's JSON, by the keys of its releases up to 0.19.6 (deepspeed/runtime/config.py and the sections' own files).
#include "base/error.h"
#include "config/deepspeed_rows.h"
#include "config/dialects.h"
#include "config/value.h"

namespace trireme::config {
namespace {

constexpr auto kBoolean = Type::boolean;
constexpr const char* kMixedPrecision = "training.mixed_precision";

std::vector<ForeignKey> batch_and_gradient_keys() {
  constexpr std::string_view kDivided = "gradients are divided once, with the loss";
  return {
      sets("train_batch_size", "training.global_batch_size"),
      sets("train_micro_batch_size_per_gpu", "training.micro_batch_size"),
      sets("gradient_accumulation_steps", "training.gradient_accumulation_steps"),
      only("managed_gradient_accumulation", "true", "the engine alone knows where a step ends"),
      sets("gradient_clipping", "training.gradient_clipping"),
      sets("communication_data_type", "training.reduce_dtype"),
      idle("seq_parallel_communication_data_type", Type::text, "no rank has a part of a sequence"),
      sets("gradient_allreduce_op", "training.gradient_allreduce_op"),
      idle("prescale_gradients", kBoolean, kDivided),
      idle("gradient_predivide_factor", Type::number, kDivided),
      refused("sparse_gradients", "gradients of the embedding are dense"),
      refused("sequence_parallel_size", "sequence parallelism is later work", {"1"}),
      refused("disable_allgather", "slices are gathered by one collective"),
      idle("zero_allow_untested_optimizer", kBoolean, "every optimizer here works with every strategy"),
      idle("zero_force_ds_cpu_optimizer", kBoolean, "offloaded state is always updated by the optimizer's own kernel"),
  };
}

std::vector<ForeignKey> precision_keys_of_deepspeed() {
  const auto scale = [](std::string_view name, Type type) { return ruled(name, type); };
  return {
      ruled("fp16.enabled", kBoolean),
      idle("fp16.auto_cast", kBoolean, "inputs are token ids"),
      scale("fp16.loss_scale", Type::number),
      scale("fp16.initial_scale_power", Type::integer),
      scale("fp16.loss_scale_window", Type::integer),
      scale("fp16.hysteresis", Type::integer),
      scale("fp16.consecutive_hysteresis", kBoolean),
      scale("fp16.min_loss_scale", Type::number),
      refused("fp16.fp16_master_weights_and_grads", "master weights and sums of gradients are fp32 or bf16"),
      ruled("bf16.enabled", kBoolean, {"bfloat16.enabled"}),
      idle("bf16.immediate_grad_update", kBoolean, "gradients are added to their sums at once",
           {"bfloat16.immediate_grad_update"}),
      ruled("bf16.check_grad_overflow", kBoolean, {"bfloat16.check_grad_overflow"}),
      ruled("bf16.bf16_master_weights_and_grads", kBoolean, {"bfloat16.bf16_master_weights_and_grads"}),
      ruled("bf16.bf16_optimizer_states", kBoolean, {"bfloat16.bf16_optimizer_states"}),
      ruled("torch_autocast.enabled", kBoolean),
      ruled("torch_autocast.dtype", Type::text),
      idle("torch_autocast.lower_precision_safe_modules", Type::texts, "all matrix products are in the lower type"),
      sets("data_types.grad_accum_dtype", "training.grad_accum_dtype"),
      sets("data_types.param_dtype", "training.param_dtype"),
      idle("data_types.buffer_dtype", Type::text, "these models have no buffers"),
  };
}

std::vector<ForeignKey> report_keys() {
  return {
      sets("steps_per_print", "monitor.log_interval"),
      sets("wall_clock_breakdown", "monitor.wall_clock_breakdown"),
      {.name = "tensorboard.enabled", .key = "monitor.report_to", .values = {{"true", "tensorboard"}, {"false", ""}}},
      idle("tensorboard.output_path", Type::text, "event files are in OUTPUT_DIR/tensorboard"),
      idle("tensorboard.job_name", Type::text, "event files are in OUTPUT_DIR/tensorboard"),
      idle("timers.throughput.enabled", kBoolean, "tokens a second are always measured"),
      idle("timers.throughput.synchronized", kBoolean, "a step is timed from end to end"),
      refused("memory_breakdown", "`trireme plan` has the memory of each phase, before the run"),
      idle("dump_state", kBoolean, "the resolved configuration is always written, to config.resolved.yaml"),
      idle("log_level", Type::text, "the log has one level"),
      idle("dataloader_drop_last", kBoolean, "steps run on across epochs"),
      idle("vocabulary_size", Type::integer, "the model's own is known"),
      refused("graph_harvesting", "CUDA graphs are later work"),
      refused("use_data_before_expert_parallelism", "there are no experts here"),
  };
}

std::vector<ForeignKey> recompute_and_checkpoint_keys() {
  constexpr std::string_view kPlanned = "kept values have planned places, side by side";
  return {
      idle("activation_checkpointing.partition_activations", kBoolean,
           "values are kept where they are computed: there is no tensor parallelism"),
      idle("activation_checkpointing.contiguous_memory_optimization", kBoolean, kPlanned),
      idle("activation_checkpointing.number_checkpoints", Type::integer,
           "training.recompute_every says how many blocks are recomputed"),
      ruled("activation_checkpointing.cpu_checkpointing", kBoolean),
      idle("activation_checkpointing.synchronize_checkpoint_boundary", kBoolean, "the schedule has all waits"),
      idle("activation_checkpointing.profile", kBoolean, "monitor.wall_clock_breakdown has the time of recomputing"),
      idle("checkpoint.tag_validation", Type::text, "a checkpoint is one folder, which all ranks agree on"),
      idle("checkpoint.load_universal", kBoolean, "every checkpoint fits any number of ranks"),
      refused("checkpoint.use_node_local_storage", "a checkpoint is one folder, which all ranks reach"),
      idle("checkpoint.checkpoint_serialization", kBoolean, "checkpoints are safetensors"),
      idle("checkpoint.parallel_write.pipeline_stage", kBoolean, "each rank writes its part"),
  };
}

bool is_on(const ForeignValue* value) {
  return value != nullptr && parse_bool(value->node.text) == true;
}

void read_precision(Translation& file) {
  const ForeignValue *fp16 = file.find("fp16.enabled"), *bf16 = file.find("bf16.enabled"),
                     *autocast = file.find("torch_autocast.enabled");
  if (is_on(fp16) && is_on(bf16)) {
    throw Error(2104, bf16->place, "bf16.enabled is true, but fp16.enabled is too (" + fp16->place + ")",
                "the computation has one type: keep one of them");
  }
  for (const auto& [enabled, type] : {std::pair{fp16, "fp16"}, std::pair{bf16, "bf16"}}) {
    if (enabled == nullptr) continue;
    is_on(enabled) ? file.set(kMixedPrecision, *enabled, type) : file.rule_out(kMixedPrecision, *enabled, type);
  }
  const ForeignValue* dtype = file.find("torch_autocast.dtype");
  if (is_on(autocast)) {
    if (dtype != nullptr) file.set(kMixedPrecision, *dtype, dtype->node);
    if (dtype == nullptr) file.set(kMixedPrecision, *autocast, "bf16");
  } else if (dtype != nullptr) {
    file.has_no_effect(*dtype, "torch_autocast is off");
  }
  if (is_on(autocast)) file.notice(*autocast, "is read as training.mixed_precision, with fp32 master weights");
  if (fp16 != nullptr && bf16 != nullptr && !is_on(fp16) && !is_on(bf16) && !is_on(autocast)) {
    file.set(kMixedPrecision, *fp16, "no");
  }
}

// There they need bf16; where it is off, they are not looked at.
void read_state_types(Translation& file) {
  const bool is_bf16 = is_on(file.find("bf16.enabled"));
  const auto set = [&](const char* name, std::initializer_list<const char*> keys) {
    const ForeignValue* value = file.find(name);
    if (value == nullptr) return;
    if (!is_bf16) return file.has_no_effect(*value, "bf16 is off");
    for (const char* key : keys) file.set(key, *value, is_on(value) ? "bf16" : "fp32");
    if (is_on(value)) file.notice(*value, "rounds stochastically here, where DeepSpeed rounds to nearest");
  };
  set("bf16.bf16_master_weights_and_grads", {"training.master_dtype", "training.grad_accum_dtype"});
  set("bf16.bf16_optimizer_states", {"training.moment_dtype"});
}

// They mean something with fp16 alone; where the file leaves that open, our own keys say whether they do.
void read_loss_scale(Translation& file) {
  const ForeignValue* fp16 = file.find("fp16.enabled");
  const bool is_off = (fp16 != nullptr && !is_on(fp16)) || is_on(file.find("bf16.enabled"));
  for (const char* name : {"loss_scale", "initial_scale_power", "loss_scale_window", "hysteresis",
                           "consecutive_hysteresis", "min_loss_scale"}) {
    const ForeignValue* value = file.find("fp16." + std::string(name));
    if (value == nullptr) continue;
    if (is_off) {
      file.has_no_effect(*value, "fp16 is off");
    } else {
      file.set("training." + std::string(name), *value, value->node);
    }
  }
  const ForeignValue* check = file.find("bf16.check_grad_overflow");
  if (check == nullptr) return;
  if (!is_on(file.find("bf16.enabled"))) return file.has_no_effect(*check, "bf16 is off");
  file.set("training.nonfinite_gradients", *check, is_on(check) ? "skip" : "stop");
}

void read_recompute(Translation& file) {
  const ForeignValue* cpu = file.find("activation_checkpointing.cpu_checkpointing");
  if (cpu == nullptr) return;
  if (is_on(cpu)) file.set("training.gradient_checkpointing", *cpu, "full");
  file.set("training.cpu_checkpointing", *cpu, cpu->node);
}

// There the batch alone is one micro-batch a rank.
void read_batch(Translation& file) {
  const ForeignValue* batch = file.find("train_batch_size");
  if (batch == nullptr) return;
  file.set_softly("training.gradient_accumulation_steps", *batch, "1", {"training.micro_batch_size"});
}

void deepspeed_rules(Translation& file) {
  read_batch(file);
  read_precision(file);
  read_state_types(file);
  read_loss_scale(file);
  read_recompute(file);
  read_deepspeed_zero(file);
  read_deepspeed_optimizer(file);
  read_deepspeed_scheduler(file);
}

std::vector<ForeignKey> deepspeed_keys() {
  std::vector<ForeignKey> rows;
  for (const auto& part :
       {batch_and_gradient_keys(), precision_keys_of_deepspeed(), report_keys(), recompute_and_checkpoint_keys(),
        deepspeed_zero_keys(), deepspeed_optimizer_and_scheduler_keys(), deepspeed_refused_sections()}) {
    add(rows, part);
  }
  return rows;
}

}  // namespace

const Dialect& deepspeed_dialect() {
  static const Dialect dialect{
      .tool = "DeepSpeed", .keys = deepspeed_keys(), .rules = deepspeed_rules, .underscore_is_comment = true};
  return dialect;
}

}  // namespace trireme::config
