// Keys without their blocks: Trainer's style, and the flat dictionary of the training guides with its own defaults.
#include "helpers.h"
#include "tool_folder.h"

namespace trireme::config {
namespace {

const std::string kModel =
    "model: {hidden_size: 64, num_layers: 2, num_heads: 4}\n"
    "data: {path: tokens}\n";

Plan flat(const std::string& keys, const Overrides& overrides = {}) {
  return plan_of(kModel + "max_steps: 10\n" + keys, overrides);
}

std::string origin_of(const Plan& plan, const std::string& key) {
  return plan.origins.at(key).place;
}

TEST(FlatDictionaries, HaveTheirOwnDefaults) {
  const Plan plan = flat("");
  EXPECT_EQ(plan.training.micro_batch_size, 1);
  EXPECT_EQ(plan.training.learning_rate, 1e-4);
  EXPECT_EQ(plan.distributed.strategy, Strategy::zero2);
  EXPECT_EQ(plan.training.mixed_precision, MixedPrecision::fp16);
  EXPECT_EQ(plan.training.gradient_accumulation_steps, 1);
  EXPECT_EQ(plan.training.gradient_clipping, 1);
  EXPECT_EQ(plan.distributed.offload_optimizer, Offload::none);
  EXPECT_EQ(plan.distributed.offload_param, Offload::none);
  EXPECT_EQ(plan.training.gradient_checkpointing, Recompute::none);
  EXPECT_EQ(plan.checkpoint.save_interval, 1000);
  EXPECT_EQ(plan.monitor.log_interval, 10);
  for (const char* key : {"training.learning_rate", "distributed.strategy", "training.mixed_precision",
                          "checkpoint.save_interval", "monitor.log_interval"}) {
    EXPECT_EQ(origin_of(plan, key), "default of a flat dictionary") << key;
    EXPECT_TRUE(plan.origins.at(key).is_default) << key;
  }
  EXPECT_NE(explain(plan).find("default of a flat dictionary"), std::string::npos);
}

TEST(FlatDictionaries, EndWithTheFirstKnownBlock) {
  for (const char* block : {"training: {seed: 1}\n", "distributed: {}\n", "checkpoint:\n", "monitor.trace_step: 1\n"}) {
    const Plan plan = flat(block);
    EXPECT_EQ(plan.training.mixed_precision, MixedPrecision::no) << block;
    EXPECT_EQ(plan.distributed.strategy, Strategy::ddp) << block;
    EXPECT_EQ(plan.training.learning_rate, 3e-4) << block;
  }
  EXPECT_EQ(plan_of(kModel + "fsdp_version: 2\n", {"training.max_steps=1"}).training.mixed_precision,
            MixedPrecision::no)
      << "keys of FSDP alone are no dictionary";
}

TEST(FlatDictionaries, DefaultsYieldToWhatIsSet) {
  EXPECT_EQ(flat("bf16: true\n").training.mixed_precision, MixedPrecision::bf16);
  EXPECT_EQ(flat("mixed_precision: no\n").training.mixed_precision, MixedPrecision::no);
  EXPECT_EQ(flat("param_dtype: bf16\n").training.mixed_precision, MixedPrecision::bf16);
  EXPECT_EQ(flat("zero_stage: 0\n").distributed.strategy, Strategy::ddp);
  EXPECT_EQ(flat("fsdp_sharding_strategy: SHARD_GRAD_OP\n").distributed.strategy, Strategy::shard_grad_op);
  EXPECT_EQ(flat("use_fsdp: true\n").distributed.strategy, Strategy::full_shard);
  EXPECT_EQ(flat("", {"training.learning_rate=1"}).training.learning_rate, 1);
  EXPECT_EQ(flat("offload_param: true\n").distributed.strategy, Strategy::zero3) << "zero2 has no slices to offload";
  EXPECT_TRUE(has_notice(flat("offload_param: true\n"), "zero3 in place of"));
  EXPECT_EQ(flat("offload_param: true\n").distributed.offload_optimizer, Offload::cpu);
  const Plan stops = flat("nonfinite_gradients: stop\n");
  EXPECT_EQ(stops.training.mixed_precision, MixedPrecision::bf16);
  EXPECT_TRUE(has_notice(stops, "bf16 in place of"));
  EXPECT_EQ(flat("nonfinite_gradients: stop\nloss_scale: 8\n").training.mixed_precision, MixedPrecision::fp16);
}

TEST(FlatDictionaries, TheGuidesAreRead) {
  const Plan plan = flat(
      "batch_size: 32\nlearning_rate: 1e-4\ngradient_accumulation_steps: 4\ngradient_clipping: 1.0\nzero_stage: 3\n"
      "offload_optimizer: true\noffload_param: True\nfp16: True\nloss_scale: None\nactivation_checkpointing: True\n"
      "save_dir: ./checkpoints\nsave_interval: 500\nkeep_checkpoints: 5\nlog_interval: 10\nsave_logs: True\n"
      "steps_per_print: 10\nwall_clock_breakdown: False\nprofiling: False\n");
  EXPECT_EQ(plan.training.micro_batch_size, 32);
  EXPECT_EQ(plan.training.gradient_accumulation_steps, 4);
  EXPECT_EQ(plan.distributed.strategy, Strategy::zero3);
  EXPECT_EQ(plan.distributed.offload_optimizer, Offload::cpu);
  EXPECT_EQ(plan.distributed.offload_param, Offload::cpu);
  EXPECT_FALSE(plan.precision.loss_scale);
  EXPECT_EQ(plan.training.gradient_checkpointing, Recompute::full);
  EXPECT_EQ(plan.output_dir, "./checkpoints");
  EXPECT_EQ(plan.checkpoint.save_interval, 500);
  EXPECT_EQ(plan.checkpoint.keep, 5);
  EXPECT_EQ(plan.monitor.log_interval, 10);
  EXPECT_TRUE(has_notice(plan, "save_logs has no effect"));
}

TEST(FlatDictionaries, MayBeJson) {
  const std::string json =
      R"({"model": {"hidden_size": 64, "num_layers": 2, "num_heads": 4}, "data": {"path": "tokens"},
          // the guide's
          "max_steps": 10, "zero_stage": 1, "loss_scale": null, "fp16": true,})";
  const Plan plan = parse_plan(json, "run.json", {});
  EXPECT_EQ(plan.distributed.strategy, Strategy::zero1);
  EXPECT_EQ(plan.training.learning_rate, 1e-4);
  EXPECT_EQ(plan.origins.at("distributed.strategy").place, "run.json:3:28");
}

TEST(Sections, OffloadingIsAWordOrASection) {
  const auto offload = [](const std::string& line) {
    return plan_of(kSmall + "distributed:\n  strategy: zero3\n  " + line + "\n").distributed.offload_optimizer;
  };
  EXPECT_EQ(offload("offload_optimizer: true"), Offload::cpu);
  EXPECT_EQ(offload("offload_optimizer: {device: cpu, pin_memory: true, buffer_count: 4, ratio: 1.0}"), Offload::cpu);
  EXPECT_EQ(offload("offload_optimizer: {device: none}"), Offload::none);
  EXPECT_EQ(offload("offload_optimizer: {}"), Offload::none);
  EXPECT_EQ(offload("offload_param: {device: cpu, pin_memory: true}"), Offload::cpu);
  EXPECT_EQ(flat("offload_optimizer: {device: cpu}\n").distributed.offload_optimizer, Offload::cpu);
  EXPECT_EQ(plan_of(kSmall, {"distributed.offload_optimizer={device: cpu}"}).distributed.offload_optimizer,
            Offload::cpu);
  const std::string block = kSmall + "distributed:\n  strategy: zero3\n  offload_optimizer: ";
  EXPECT_EQ(error_of(block + "{device: nvme}\n")->code(), 2190);
  EXPECT_EQ(error_of(block + "{device: cpu, ratio: 0.5}\n")->code(), 2190);
  EXPECT_NE(error_of(block + "{devise: cpu}\n")->remedy().find("offload_optimizer.device"), std::string::npos);
  EXPECT_EQ(error_of(block + "{device: cpu}\n  offload_optimizer_device: none\n")->code(), 2103);
}

TEST(Sections, RecomputationIsAWordOrASection) {
  const Plan plan =
      flat("activation_checkpointing: {enabled: true, partition_activations: true, cpu_checkpointing: true}\n");
  EXPECT_EQ(plan.training.gradient_checkpointing, Recompute::full);
  EXPECT_TRUE(plan.training.cpu_checkpointing);
  EXPECT_TRUE(has_notice(plan, "partition_activations has no effect"));
  EXPECT_EQ(flat("activation_checkpointing: {enabled: false}\n").training.gradient_checkpointing, Recompute::none);
  EXPECT_EQ(plan_of(kSmall + "  activation_checkpointing:\n    enabled: yes\n").training.gradient_checkpointing,
            Recompute::full);
}

TEST(Sections, FaultTolerance) {
  const Plan plan =
      plan_of(kSmall + "fault_tolerance: {auto_resume: true, max_retry_attempts: 3, checkpoint_interval: 50}\n");
  EXPECT_EQ(plan.checkpoint.resume, Resume::automatic);
  EXPECT_EQ(plan.checkpoint.save_interval, 50);
  EXPECT_TRUE(has_notice(plan, "max_retry_attempts has no effect: a run that failed is not restarted"));
  EXPECT_EQ(plan_of(kSmall + "checkpoint: {auto_resume: false}\n").checkpoint.resume, Resume::never);
  EXPECT_EQ(flat("auto_resume: false\ncheckpoint_interval: 5\n").checkpoint.save_interval, 5);
}

TEST(Names, OfTrainerStandAtTheTopOrInTheirBlock) {
  const std::string keys[] = {
      "per_device_train_batch_size: 3", "learning_rate: 0.5", "num_train_epochs: 2", "bf16: true",
      "lr_scheduler_type: linear",      "save_total_limit: 7"};
  std::string top = kModel, block = kModel + "training:\n";
  for (const std::string& key : keys) {
    top += key + "\n";
    block += "  " + key + "\n";
  }
  const Plan at_top = plan_of(top + "distributed: {}\n"), in_block = plan_of(block);
  EXPECT_EQ(at_top.training, in_block.training);
  EXPECT_EQ(at_top.training.micro_batch_size, 3);
  EXPECT_EQ(at_top.checkpoint.keep, 7);
  EXPECT_TRUE(has_notice(at_top, "run.yaml:4:1: learning_rate is read as training.learning_rate"));
}

TEST(Names, OfTheReceiversStandAnywhere) {
  for (const char* text :
       {"report_to: tensorboard\n", "training.report_to: tensorboard\n", "distributed: {report_to: [tensorboard]}\n",
        "checkpoint.report_to: tensorboard\n", "model.report_to: tensorboard\n", "data.report_to: tensorboard\n"}) {
    EXPECT_EQ(plan_of(kSmall + text).monitor.report_to, std::vector<Receiver>{Receiver::tensorboard}) << text;
  }
}

TEST(Names, OfTheGuidesCommunicationAndCheckpoints) {
  const Plan plan = flat(
      "communication_data_type: fp16\nallgather_base_size: 1000000\nreduce_scatter_base_size: 2000000\n"
      "gather_16bit_weights_on_model_save: true\nkeep_interval: 4\n");
  EXPECT_EQ(plan.precision.reduce_dtype, ElementType::fp16);
  EXPECT_EQ(plan.distributed.allgather_bucket_size, 1000000);
  EXPECT_EQ(plan.distributed.bucket_size, 2000000);
  EXPECT_EQ(plan.checkpoint.keep, 4);
  EXPECT_TRUE(has_notice(plan, "saved whole until sharded checkpoints exist"));
}

TEST(Names, TwoOfOneKeyMaySayTheSame) {
  EXPECT_EQ(flat("log_interval: 5\nsteps_per_print: 5\n").monitor.log_interval, 5);
  const auto error = error_of(kModel + "max_steps: 1\nlog_interval: 5\nsteps_per_print: 6\n");
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), 2103);
  EXPECT_NE(error->remedy().find("steps_per_print and log_interval"), std::string::npos) << error->what();
}

}  // namespace
}  // namespace trireme::config
