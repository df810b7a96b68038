// Sections of DeepSpeed for what is not done here: refused where they are on. Their other keys say how, which means
// nothing as long as they are off.
#include "config/deepspeed_rows.h"

namespace trireme::config {
namespace {

// A section with a switch. `keys` are whole names.
std::vector<ForeignKey> section(ForeignKey enabled, std::initializer_list<std::string_view> keys) {
  std::vector<ForeignKey> rows = {std::move(enabled)};
  for (const std::string_view key : keys) rows.push_back({.name = key, .fate = Fate::no_effect});
  return rows;
}

constexpr std::string_view kFiles = "it writes nothing here; metrics.jsonl and tensorboard have the same numbers",
                           kService = "it sends to a service, and none is reached from here";

std::vector<ForeignKey> profiler_and_monitor_sections() {
  std::vector<ForeignKey> rows;
  add(rows, section(refused("flops_profiler.enabled", "`trireme plan` prices each step; a profiler is later work"),
                    {"flops_profiler.profile_step", "flops_profiler.module_depth", "flops_profiler.top_modules",
                     "flops_profiler.detailed", "flops_profiler.output_file", "flops_profiler.recompute_fwd_factor"}));
  add(rows, section(refused("comms_logger.enabled", "monitor.wall_clock_breakdown has the times; a log is later work"),
                    {"comms_logger.verbose", "comms_logger.prof_all", "comms_logger.debug", "comms_logger.prof_ops"}));
  add(rows, section(refused("csv_monitor.enabled", kFiles), {"csv_monitor.output_path", "csv_monitor.job_name"}));
  add(rows, section(refused("wandb.enabled", kService), {"wandb.group", "wandb.team", "wandb.project"}));
  add(rows, section(refused("comet.enabled", kService),
                    {"comet.samples_log_interval", "comet.project", "comet.workspace", "comet.api_key",
                     "comet.experiment_name", "comet.experiment_key", "comet.online", "comet.mode"}));
  return rows;
}

std::vector<ForeignKey> parallel_sections() {
  constexpr std::string_view kPipeline = "pipeline parallelism is later work",
                             kTensor = "tensor parallelism is later work", kExperts = "there are no experts here";
  std::vector<ForeignKey> rows;
  add(rows, section(refused("pipeline.stages", kPipeline, {"1"}),
                    {"pipeline.partition", "pipeline.seed_layers", "pipeline.activation_checkpoint_interval",
                     "pipeline.pipe_partitioned", "pipeline.grad_partitioned"}));
  add(rows, section(refused("tensor_parallel.autotp_size", kTensor, {"1"}),
                    {"tensor_parallel.tp.tp_grain_size", "tensor_parallel.tp_overlap_comm", "tensor_parallel.dtype",
                     "tensor_parallel.preset_model", "tensor_parallel.injection_policy_tuple",
                     "tensor_parallel.partition_config", "tensor_parallel.keep_module_on_host",
                     "tensor_parallel.replace_with_kernel_inject", "tensor_parallel.kernel_inject"}));
  rows.push_back(refused("tensor_parallel.tp.tp_size", kTensor, {"1"}));
  add(rows, section(refused("expert_parallel.enabled", kExperts), {"expert_parallel.autoep_size",
                                                                   "expert_parallel.expert_tensor_parallel_size",
                                                                   "expert_parallel.preset_model",
                                                                   "expert_parallel.use_grouped_mm",
                                                                   "expert_parallel.disable_triton_grouped_mm",
                                                                   "expert_parallel.moe_layer_pattern",
                                                                   "expert_parallel.router_pattern",
                                                                   "expert_parallel.expert_pattern",
                                                                   "expert_parallel.score_func",
                                                                   "expert_parallel.score_apply",
                                                                   "expert_parallel.route_norm",
                                                                   "expert_parallel.route_scale",
                                                                   "expert_parallel.top_k",
                                                                   "expert_parallel.routed_scaling_factor",
                                                                   "expert_parallel.num_expert_groups",
                                                                   "expert_parallel.num_limited_groups",
                                                                   "expert_parallel.load_balance_coeff",
                                                                   "expert_parallel.expert_w1",
                                                                   "expert_parallel.expert_w2",
                                                                   "expert_parallel.expert_w3",
                                                                   "expert_parallel.num_experts_attr",
                                                                   "expert_parallel.top_k_attr",
                                                                   "expert_parallel.has_shared_experts",
                                                                   "expert_parallel.shared_experts_pattern"}));
  add(rows, section(refused("hybrid_engine.enabled", "there is no generation between training steps"),
                    {"hybrid_engine.max_out_tokens", "hybrid_engine.inference_tp_size",
                     "hybrid_engine.release_inference_cache", "hybrid_engine.pin_parameters",
                     "hybrid_engine.tp_gather_partition_size"}));
  return rows;
}

std::vector<ForeignKey> batch_and_data_sections() {
  std::vector<ForeignKey> rows;
  add(rows, section(refused("elasticity.enabled",
                            "tables of batch sizes for many numbers of ranks are not read; a run goes on with its "
                            "global batch on any number of ranks"),
                    {"elasticity.max_train_batch_size", "elasticity.micro_batch_sizes", "elasticity.min_gpus",
                     "elasticity.max_gpus", "elasticity.min_time", "elasticity.prefer_larger_batch",
                     "elasticity.ignore_non_elastic_batch_info", "elasticity.version", "elasticity.num_gpus_per_node",
                     "elasticity.model_parallel_size"}));
  add(rows, section(refused("autotuning.enabled", "a search over plans is later work"),
                    {"autotuning.fast", "autotuning.results_dir", "autotuning.exps_dir", "autotuning.overwrite",
                     "autotuning.start_profile_step", "autotuning.end_profile_step", "autotuning.metric",
                     "autotuning.metric_path", "autotuning.tuner_type", "autotuning.tuner_early_stopping",
                     "autotuning.tuner_num_trials", "autotuning.arg_mappings", "autotuning.max_train_batch_size",
                     "autotuning.min_train_batch_size", "autotuning.max_train_micro_batch_size_per_gpu",
                     "autotuning.min_train_micro_batch_size_per_gpu", "autotuning.num_tuning_micro_batch_sizes",
                     "autotuning.mp_size", "autotuning.model_info"}));
  add(rows, section(refused("curriculum_learning.enabled", "samples have one length; a curriculum is later work"),
                    {"curriculum_learning.curriculum_type", "curriculum_learning.min_difficulty",
                     "curriculum_learning.max_difficulty", "curriculum_learning.schedule_type",
                     "curriculum_learning.schedule_config"}));
  add(rows, section(refused("data_efficiency.enabled", "samples are taken as they are"),
                    {"data_efficiency.seed", "data_efficiency.data_sampling", "data_efficiency.data_routing"}));
  return rows;
}

std::vector<ForeignKey> storage_sections() {
  constexpr std::string_view kAsync = "checkpoints are saved between two steps; saving beside them is later work";
  std::vector<ForeignKey> rows;
  add(rows, section(refused("nebula.enabled", kAsync),
                    {"nebula.persistent_storage_path", "nebula.persistent_time_interval",
                     "nebula.num_of_version_in_retention", "nebula.enable_nebula_load", "nebula.nebula_load_path"}));
  add(rows, section(refused("checkpoint.writer.decoupled", kAsync),
                    {"checkpoint.writer.type", "checkpoint.writer.io_buffer_size", "checkpoint.writer.io_buffer_double",
                     "checkpoint.writer.show_statistics", "checkpoint.writer.data_parallel",
                     "checkpoint.writer.io_multiplier"}));
  rows.push_back(refused("datastates_ckpt", kAsync));
  for (const std::string_view key : {"aio.block_size", "aio.queue_depth", "aio.intra_op_parallelism",
                                     "aio.thread_count", "aio.single_submit", "aio.overlap_events", "aio.use_gds"}) {
    rows.push_back(idle(key, Type::any, "offloading is to host memory, not to NVMe"));
  }
  return rows;
}

std::vector<ForeignKey> model_sections() {
  constexpr std::string_view kModel = "it changes the model, which is trained as it is";
  std::vector<ForeignKey> rows;
  add(rows, section(refused("amp.enabled", "fp16 and bf16 have sections of their own; NVIDIA's apex is not used"),
                    {"amp.opt_level", "amp.loss_scale", "amp.keep_batchnorm_fp32", "amp.cast_model_type",
                     "amp.patch_torch_functions", "amp.master_weights", "amp.num_losses", "amp.verbosity",
                     "amp.min_loss_scale", "amp.max_loss_scale"}));
  add(rows,
      section(refused("compile.deepcompile", "there is no graph to compile"),
              {"compile.passes", "compile.free_activation", "compile.free_activation_threshold",
               "compile.offload_activation", "compile.offload_activation_pin_memory", "compile.offload_opt_states",
               "compile.offload_parameters", "compile.double_buffer", "compile.symmetric_memory", "compile.debug_log",
               "compile.sync_before_reduce", "compile.sync_after_reduce", "compile.sync_before_allgather",
               "compile.sync_after_allgather", "compile.keep_int_input_tensors", "compile.keep_all_input_tensors"}));
  add(rows, section(refused("progressive_layer_drop.enabled", kModel),
                    {"progressive_layer_drop.theta", "progressive_layer_drop.gamma"}));
  add(rows, section(refused("eigenvalue.enabled", kModel),
                    {"eigenvalue.verbose", "eigenvalue.max_iter", "eigenvalue.tol", "eigenvalue.stability",
                     "eigenvalue.gas_boundary_resolution", "eigenvalue.layer_name", "eigenvalue.layer_num"}));
  for (const std::string_view key :
       {"compression_training", "weight_quantization", "quantize_training", "sparse_attention"}) {
    rows.push_back(refused(key, kModel));
  }
  return rows;
}

}  // namespace

std::vector<ForeignKey> deepspeed_refused_sections() {
  std::vector<ForeignKey> rows;
  for (const auto& part : {profiler_and_monitor_sections(), parallel_sections(), batch_and_data_sections(),
                           storage_sections(), model_sections()}) {
    add(rows, part);
  }
  return rows;
}

}  // namespace trireme::config
