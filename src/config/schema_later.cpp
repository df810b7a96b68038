// Keys of later work, refused with "not yet" unless they say "off", and keys of other tools that mean nothing here.
#include "config/schema_rows.h"

namespace trireme::config {
namespace {

using Views = std::vector<std::string_view>;

Key not_yet(std::string_view name, Type type, Views inert, std::string_view doc, std::vector<Alias> aliases = {}) {
  return {.name = name,
          .type = type,
          .tier = Tier::not_yet,
          .optional = true,
          .inert = std::move(inert),
          .aliases = std::move(aliases),
          .doc = doc};
}

Key no_effect(std::string_view name, std::string_view doc, std::vector<Alias> aliases = {}) {
  return {.name = name,
          .type = Type::any,
          .tier = Tier::no_effect,
          .optional = true,
          .aliases = std::move(aliases),
          .doc = doc};
}

std::vector<Key> model_and_training_keys() {
  return {
      not_yet("model.rope_scaling", Type::any, {}, "Stretched rotary positions."),
      not_yet("model.hidden_act", Type::text, {"silu"}, "Another activation than SwiGLU's."),
      not_yet("model.attention_bias", Type::boolean, {"false"}, "Biases of the attention projections."),
      not_yet("model.mlp_bias", Type::boolean, {"false"}, "Biases of the feed-forward layers."),
      not_yet("model.sliding_window", Type::integer, {}, "Attention over a window."),
      not_yet("training.initial_loss_scale", Type::number, {}, "A first scale; use initial_scale_power."),
      not_yet("training.warmup_ratio", Type::number, {"0"}, "Warm-up as a share of the steps; use warmup_steps."),
      not_yet("training.cycle_momentum", Type::boolean, {"false"},
              "one_cycle: a momentum that falls as the rate rises."),
      not_yet("training.cycle_min_mom", Type::number, {}, "one_cycle: the least momentum."),
      not_yet("training.cycle_max_mom", Type::number, {}, "one_cycle: the largest momentum."),
      not_yet("training.decay_mom_rate", Type::number, {"0"}, "one_cycle: decay of the momentum."),
      not_yet("training.cycle_first_stair_count", Type::integer, {"0"}, "one_cycle: a rise in steps."),
      not_yet("training.cycle_second_stair_count", Type::integer, {"0"}, "one_cycle: a fall in steps."),
      not_yet("training.label_smoothing", Type::number, {"0"}, "Label smoothing.",
              {{"label_smoothing_factor", kHuggingFace}}),
  };
}

std::vector<Key> data_keys() {
  return {
      not_yet("data.truncation", Type::any, {"true", "longest_first", "only_first"},
              "Refusing documents that are longer than a sample instead of cutting them."),
      not_yet("data.padding_side", Type::text, {"right"}, "Padding in front."),
      not_yet("data.streaming", Type::boolean, {"false"}, "Training on data that is not prepared."),
  };
}

std::vector<Key> distributed_keys() {
  return {
      not_yet("distributed.tp", Type::integer, {"1"}, "Tensor parallelism.",
              {{"tensor_parallel_degree", kTitan}, {"tensor_model_parallel_size", kMegatron}}),
      not_yet("distributed.pp", Type::integer, {"1"}, "Pipeline parallelism.",
              {{"pipeline_parallel_degree", kTitan}, {"pipeline_model_parallel_size", kMegatron}}),
      not_yet("distributed.cp", Type::integer, {"1"}, "Context parallelism.",
              {{"context_parallel_degree", kTitan}, {"context_parallel_size", kMegatron}}),
      not_yet("distributed.pipeline_schedule", Type::any, {}, "Order of the micro-batches in a pipeline.",
              {{"pipeline_parallel_schedule", kTitan}}),
      not_yet("distributed.sequence_parallel", Type::boolean, {"false"}, "Norms sharded over the sequence."),
      not_yet("distributed.backend", Type::text, {"gloo", "auto"}, "NCCL and MPI.",
              {{"training.ddp_backend", kHuggingFace}}),
      not_yet("distributed.elastic", Type::any, {"false"}, "A number of ranks that changes during the run."),
      not_yet("distributed.min_nodes", Type::integer, {"1"}, "Fewest nodes of an elastic run."),
      not_yet("distributed.max_nodes", Type::integer, {"1"}, "Most nodes of an elastic run."),
      not_yet("distributed.max_restarts", Type::integer, {"0"}, "Restarts after a fault."),
  };
}

std::vector<Key> checkpoint_and_monitor_keys() {
  return {
      not_yet("checkpoint.async", Type::boolean, {"false"}, "Saving while training goes on.",
              {{"async_save", kMegatron}, {"async_mode", kTitan, {{"disabled", "false"}, {"async", "true"}}}}),
      not_yet("checkpoint.export_huggingface", Type::boolean, {"false"}, "A Hugging Face folder at the end."),
      not_yet("monitor.profile", Type::any, {"false"}, "A trace of some steps.",
              {{"profiling", kGuides}, {"training.profiling", kGuides}}),
      not_yet("monitor.prometheus_port", Type::integer, {"0"}, "A port to scrape metrics from."),
  };
}

// What is said beside the device that the state is offloaded to, and beside recomputation.
std::vector<Key> keys_of_sections() {
  constexpr std::string_view kHostMemory = "host memory is one block that is there from the start",
                             kCopies = "the schedule says when state is copied";
  return {
      not_yet("distributed.offload_optimizer.ratio", Type::number, {"1"}, "A part of the optimizer on the device."),
      not_yet("distributed.offload_optimizer.nvme_path", Type::path, {}, "State on disk."),
      not_yet("distributed.offload_param.nvme_path", Type::path, {}, "Parameters on disk."),
      no_effect("distributed.offload_optimizer.pin_memory", kHostMemory),
      no_effect("distributed.offload_optimizer.buffer_count", kCopies),
      no_effect("distributed.offload_optimizer.pipeline_read", kCopies),
      no_effect("distributed.offload_optimizer.pipeline_write", kCopies),
      no_effect("distributed.offload_optimizer.fast_init", kHostMemory),
      no_effect("distributed.offload_param.pin_memory", kHostMemory),
      no_effect("distributed.offload_param.buffer_count", kCopies),
      no_effect("distributed.offload_param.buffer_size", kCopies),
      no_effect("distributed.offload_param.max_in_cpu", kHostMemory),
      no_effect("training.activation_checkpointing.partition_activations",
                "activations are divided only by tensor parallelism"),
  };
}

std::vector<Key> idle_keys() {
  return {
      no_effect("distributed.find_unused_parameters", "the schedule knows which unit uses what",
                {{"training.ddp_find_unused_parameters", kHuggingFace}}),
      no_effect("distributed.bucket_cap_mb", "each storage group is one collective",
                {{"ddp_bucket_cap_mb", kGuides}, {"training.ddp_bucket_cap_mb", kHuggingFace}}),
      no_effect("distributed.gradient_as_bucket_view", "gradients are written in place"),
      no_effect("distributed.static_graph", "the schedule is always static"),
      no_effect("distributed.broadcast_buffers", "every rank computes the same buffers",
                {{"training.ddp_broadcast_buffers", kHuggingFace}}),
      no_effect("distributed.contiguous_gradients", "gradients of a group are always contiguous"),
      no_effect("training.buffer_dtype", "these models have no buffers"),
      no_effect("training.torch_compile", "there is no graph to compile"),
      no_effect("data.pin_memory", "batches are made in the memory that the step reads",
                {{"training.dataloader_pin_memory", kHuggingFace}, {"training.pin_memory", kGuides}}),
      no_effect("data.persistent_workers", "loader threads live as long as the run",
                {{"training.dataloader_persistent_workers", kHuggingFace}, {"training.persistent_workers", kGuides}}),
      no_effect("data.drop_last",
                "steps run on across epochs; only samples that do not fill the last step of the run are left out",
                {{"training.dataloader_drop_last", kHuggingFace}, {"training.drop_last", kGuides}}),
      no_effect("training.remove_unused_columns", "prepared data has tokens only"),
      no_effect("fault_tolerance.max_retry_attempts",
                "a run that failed is not restarted by itself yet: start it again, and it resumes",
                {{"distributed.max_retry_attempts", kGuides}}),
      no_effect("monitor.save_logs", "logs and metrics.jsonl are always written", {{"training.save_logs", kGuides}}),
      no_effect("checkpoint.gather_16bit_weights_on_model_save",
                "weights are saved whole until sharded checkpoints exist",
                {{"stage3_gather_16bit_weights_on_model_save", kDeepSpeed},
                 {"distributed.gather_16bit_weights_on_model_save", kDeepSpeed},
                 {"training.gather_16bit_weights_on_model_save", kDeepSpeed}}),
      no_effect("checkpoint.save_safetensors", "checkpoints are always safetensors",
                {{"training.save_safetensors", kHuggingFace}}),
  };
}

}  // namespace

std::vector<Key> later_keys() {
  std::vector<Key> rows;
  for (auto part : {model_and_training_keys(), data_keys(), distributed_keys(), checkpoint_and_monitor_keys(),
                    keys_of_sections(), idle_keys()}) {
    rows.insert(rows.end(), part.begin(), part.end());
  }
  return rows;
}

}  // namespace trireme::config
