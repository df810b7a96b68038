// accelerate's YAML: its keys, its maps, and what of a launch it says.
#include "tool_folder.h"

namespace trireme::config {
namespace {

Plan accelerate_plan(const std::string& yaml, const std::string& more = "", const Overrides& overrides = {}) {
  const ToolFolder folder;
  folder.write("deep/ds.json", R"({"zero_optimization": {"stage": 1}, "gradient_clipping": 0.25})");
  return parse_plan(kSmall + more, "run.yaml", overrides, {.accelerate = folder.write("accelerate.yaml", yaml)});
}

int accelerate_code(const std::string& yaml, const std::string& more = "", const Overrides& overrides = {}) {
  try {
    accelerate_plan(yaml, more, overrides);
  } catch (const Error& error) {
    EXPECT_FALSE(error.remedy().empty());
    return error.code();
  }
  return 0;
}

TEST(Accelerate, TheTypeDecidesTheStrategy) {
  EXPECT_EQ(accelerate_plan("distributed_type: 'NO'\n").distributed.strategy, Strategy::ddp);
  EXPECT_EQ(accelerate_plan("distributed_type: NO\n").distributed.strategy, Strategy::ddp) << "no text is a bool here";
  EXPECT_EQ(accelerate_plan("distributed_type: MULTI_GPU\n").distributed.strategy, Strategy::ddp);
  EXPECT_EQ(accelerate_plan("distributed_type: MULTI_CPU\n").distributed.strategy, Strategy::ddp);
  EXPECT_EQ(accelerate_plan("distributed_type: FSDP\n").distributed.strategy, Strategy::full_shard);
  EXPECT_EQ(accelerate_plan("distributed_type: DEEPSPEED\n").distributed.strategy, Strategy::zero2)
      << "accelerate's default stage";
  EXPECT_EQ(accelerate_plan("distributed_type: MULTI_GPU\n", "distributed: {strategy: zero3}\n").distributed.strategy,
            Strategy::zero3);
  for (const char* other : {"MEGATRON_LM", "TPU", "XLA", "TP", "MULTI_XPU", "MULTI_NPU"}) {
    EXPECT_EQ(accelerate_code("distributed_type: " + std::string(other) + "\n"), 2190) << other;
  }
  EXPECT_EQ(accelerate_code("mixed_precision: bf16\n"), 2106) << "the type is required";
}

TEST(Accelerate, AGeneratedFileOfFsdpIsRead) {
  const Plan plan = accelerate_plan(
      "compute_environment: LOCAL_MACHINE\ndebug: false\ndistributed_type: FSDP\ndowncast_bf16: 'no'\n"
      "enable_cpu_affinity: false\n"
      "fsdp_config:\n  fsdp_activation_checkpointing: true\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
      "  fsdp_cpu_ram_efficient_loading: true\n  fsdp_offload_params: false\n  fsdp_reshard_after_forward: false\n"
      "  fsdp_state_dict_type: SHARDED_STATE_DICT\n  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer\n"
      "  fsdp_version: 2\n"
      "machine_rank: 0\nmain_training_function: main\nmixed_precision: bf16\nnum_machines: 1\nnum_processes: 8\n"
      "rdzv_backend: static\nsame_network: true\ntpu_env: []\ntpu_use_cluster: false\ntpu_use_sudo: false\n"
      "use_cpu: false\n");
  EXPECT_EQ(plan.distributed.strategy, Strategy::shard_grad_op);
  EXPECT_EQ(plan.training.gradient_checkpointing, Recompute::full);
  EXPECT_EQ(plan.training.mixed_precision, MixedPrecision::bf16);
  EXPECT_EQ(plan.distributed.wrap_classes, std::vector<std::string>{"LlamaDecoderLayer"});
  EXPECT_EQ(plan.distributed.num_processes, 8);
  EXPECT_TRUE(has_notice(plan, "--rdzv-backend"));
  EXPECT_TRUE(has_notice(plan, "accelerate.yaml:12:3: fsdp_state_dict_type")) << plan.notices.front();
}

TEST(Accelerate, AGeneratedFileOfDeepSpeedIsRead) {
  const Plan plan = accelerate_plan(
      "distributed_type: DEEPSPEED\nmixed_precision: fp16\n"
      "deepspeed_config:\n  gradient_accumulation_steps: 4\n  gradient_clipping: 0.5\n"
      "  offload_optimizer_device: cpu\n  offload_param_device: cpu\n  zero3_init_flag: true\n"
      "  zero3_save_16bit_model: true\n  zero_stage: 3\n");
  EXPECT_EQ(plan.distributed.strategy, Strategy::zero3);
  EXPECT_EQ(plan.training.gradient_accumulation_steps, 4);
  EXPECT_EQ(plan.training.gradient_clipping, 0.5);
  EXPECT_EQ(plan.distributed.offload_optimizer, Offload::cpu);
  EXPECT_EQ(plan.distributed.offload_param, Offload::cpu);
  EXPECT_EQ(plan.training.mixed_precision, MixedPrecision::fp16);
  EXPECT_TRUE(has_notice(plan, "saved whole until sharded checkpoints exist"));
}

TEST(Accelerate, DeepSpeedsOwnFileIsReadAloneAndFromTheFolderOfTheFile) {
  const std::string named = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: deep/ds.json\n";
  const Plan plan = accelerate_plan(named + "  zero3_init_flag: false\n");
  EXPECT_EQ(plan.distributed.strategy, Strategy::zero1);
  EXPECT_EQ(plan.training.gradient_clipping, 0.25);
  for (const char* beside : {"zero_stage: 1", "gradient_clipping: 0.25", "gradient_accumulation_steps: 1",
                             "offload_optimizer_device: none", "zero3_save_16bit_model: true"}) {
    EXPECT_EQ(accelerate_code(named + "  " + beside + "\n"), 2104) << beside;
  }
  EXPECT_EQ(accelerate_code("distributed_type: DEEPSPEED\ndeepspeed_config: {deepspeed_config_file: no.json}\n"), 2100);
}

TEST(Accelerate, AMapOfAnotherToolThanTheTypesIsAnError) {
  EXPECT_EQ(accelerate_code("distributed_type: MULTI_GPU\nfsdp_config: {fsdp_version: 2}\n"), 2104);
  EXPECT_EQ(accelerate_code("distributed_type: FSDP\ndeepspeed_config: {zero_stage: 2}\n"), 2104);
  EXPECT_EQ(accelerate_code("distributed_type: MULTI_GPU\nfsdp_config: {}\ndeepspeed_config: {}\n"), 0);
}

TEST(Accelerate, ParallelismIsOurMesh) {
  for (const char* prefix : {"parallelism_config_", ""}) {
    const std::string p = prefix;
    const Plan plan =
        accelerate_plan("distributed_type: FSDP\nparallelism_config: {" + p + "dp_replicate_size: 2, " + p +
                        "dp_shard_size: 4, " + p + "tp_size: 1, " + p + "cp_size: 1, " + p + "cp_backend: torch}\n");
    EXPECT_EQ(plan.distributed.strategy, Strategy::hybrid_shard);
    EXPECT_EQ(plan.distributed.dp_replicate, 2);
    EXPECT_EQ(plan.distributed.dp_shard, 4);
    for (const char* axis : {"tp_size", "cp_size", "sp_size"}) {
      EXPECT_EQ(accelerate_code("distributed_type: FSDP\nparallelism_config: {" + p + axis + ": 2}\n"), 2190) << axis;
    }
  }
}

// As generated files have them: accelerate makes no mesh of sizes that are all 1, and a size that is left out is 1.
TEST(Accelerate, SizesOfOneSayNothing) {
  const auto plan = [](const std::string& sizes) {
    return accelerate_plan("distributed_type: FSDP\nparallelism_config: {" + sizes + "}\n").distributed;
  };
  for (const char* sizes : {"dp_replicate_size: 1, dp_shard_size: 1", "dp_shard_size: 1", "dp_replicate_size: 1"}) {
    EXPECT_EQ(plan(sizes).strategy, Strategy::full_shard) << sizes;
    EXPECT_FALSE(plan(sizes).dp_replicate) << sizes;
    EXPECT_FALSE(plan(sizes).dp_shard) << sizes;
  }
  EXPECT_EQ(plan("dp_shard_size: 4").dp_replicate, 1);
  EXPECT_EQ(plan("dp_replicate_size: 4").dp_shard, 1);
}

TEST(Accelerate, OldKeysAreRead) {
  const auto precision = [](const std::string& keys) {
    return accelerate_plan("distributed_type: MULTI_GPU\n" + keys).training.mixed_precision;
  };
  EXPECT_EQ(precision("fp16: true\n"), MixedPrecision::fp16);
  EXPECT_EQ(precision("fp16: false\n"), MixedPrecision::no);
  EXPECT_EQ(precision("fp16: true\nmixed_precision: bf16\n"), MixedPrecision::bf16);
  EXPECT_TRUE(has_notice(accelerate_plan("distributed_type: MULTI_GPU\ndynamo_backend: INDUCTOR\n"),
                         "dynamo_backend (accelerate) has no effect"));
  EXPECT_EQ(accelerate_code("distributed_type: MULTI_GPU\ntpu_vm: [a]\n"), 2190);
  EXPECT_EQ(accelerate_code("distributed_type: MULTI_GPU\ntpu_vm: null\n"), 0);
}

TEST(Accelerate, FactsOfTheLaunchSayWhichFlagMeansThem) {
  const Plan plan = accelerate_plan(
      "distributed_type: MULTI_CPU\nnum_processes: -1\nmachine_rank: 0\nmain_process_ip: 10.0.0.1\n"
      "main_process_port: 29500\n");
  EXPECT_FALSE(plan.distributed.num_processes);
  for (const char* flag : {"--node-rank", "--master-addr", "--master-port"})
    EXPECT_TRUE(has_notice(plan, flag)) << flag;
  EXPECT_EQ(accelerate_code("distributed_type: MULTI_CPU\nnum_machines: 2\n"), 2190);
}

TEST(Accelerate, WhatItSaysMayNotBeContradicted) {
  EXPECT_EQ(accelerate_code("distributed_type: MULTI_GPU\nmixed_precision: bf16\n", "  fp16: true\n"), 2111);
  EXPECT_EQ(accelerate_code("distributed_type: MULTI_GPU\nmixed_precision: bf16\n", "  bf16: true\n"), 0);
  EXPECT_EQ(accelerate_code("distributed_type: MULTI_GPU\nmixed_precision: fp8\n"), 2190);
  EXPECT_EQ(accelerate_code("distributed_type: MULTI_GPU\nnum_process: 2\n"), 2101);
  EXPECT_EQ(accelerate_code("distributed_type: FSDP\nfsdp_config: {fsdp_sharding_strateg: 1}\n"), 2101);
}

}  // namespace
}  // namespace trireme::config
