// `trireme setup`: the files that it writes are read back to the plan that its flags say.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "base/file.h"
#include "config/plan.h"
#include "support/process.h"
#include "support/temporary_folder.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;
using config::Strategy;

class Setup : public ::testing::Test {
 protected:
  ProcessResult setup(const std::string& arguments) const {
    return run({"/bin/sh", "-c", "cd '" + folder_.path().string() + "' && " TRIREME_BINARY " setup " + arguments});
  }
  // The file that the command writes into out.json.
  nlohmann::json written(const std::string& arguments) {
    const ProcessResult result = setup(arguments + " --force --output out.json");
    EXPECT_EQ(result.exit_code, 0) << arguments << ": " << result.err;
    return nlohmann::json::parse(read_file(file("out.json")));
  }
  // A small configuration beside out.json.
  config::Plan plan_with(const config::ToolFiles& files, const std::string& training = "") const {
    return config::parse_plan(
        "model: {hidden_size: 64, num_layers: 2, num_heads: 4}\ndata: {path: tokens}\n"
        "training: {max_steps: 10" +
            training + "}\n",
        file("run.yaml").string(), {}, files);
  }
  config::Plan deepspeed_plan(const std::string& flags) {
    written("deepspeed " + flags);
    return plan_with({.deepspeed = file("out.json")});
  }
  config::Plan fsdp_plan(const std::string& flags) {
    written("fsdp " + flags);
    return plan_with({.fsdp = file("out.json")});
  }
  fs::path file(const std::string& name) const { return folder_.path() / name; }

  TemporaryFolder folder_;
};

std::set<std::string> key_names(const nlohmann::json& object, const std::string& prefix = "") {
  std::set<std::string> names;
  for (const auto& [key, value] : object.items()) {
    names.insert(prefix + key);
    if (value.is_object()) names.merge(key_names(value, prefix + key + "."));
  }
  return names;
}

TEST_F(Setup, WritesDeepSpeedsKeys) {
  EXPECT_EQ(
      key_names(written("deepspeed --zero_stage 2 --offload_optimizer --bf16")),
      (std::set<std::string>{"train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping",
                             "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer", "bf16", "bf16.enabled",
                             "zero_optimization", "zero_optimization.stage", "zero_optimization.contiguous_gradients",
                             "zero_optimization.overlap_comm", "zero_optimization.reduce_scatter",
                             "zero_optimization.reduce_bucket_size", "zero_optimization.allgather_bucket_size",
                             "zero_optimization.offload_optimizer", "zero_optimization.offload_optimizer.device",
                             "zero_optimization.offload_optimizer.pin_memory"}));
}

TEST_F(Setup, WritesFsdpsKeys) {
  const nlohmann::json json = written("fsdp --sharding_strategy FULL_SHARD --mixed_precision BFLOAT16");
  EXPECT_EQ(key_names(json),
            (std::set<std::string>{"fsdp_transformer_layer_cls_to_wrap", "fsdp_sharding_strategy",
                                   "fsdp_state_dict_type", "fsdp_cuda_graphs", "fsdp_auto_wrap_policy",
                                   "fsdp_sync_module_states", "fsdp_use_orig_params", "fsdp_backward_prefetch_policy",
                                   "fsdp_forward_prefetch", "fsdp_cpu_ram_efficient_loading", "fsdp_mixed_precision"}));
  EXPECT_EQ(json["fsdp_sharding_strategy"], "FULL_SHARD");
  EXPECT_EQ(json["fsdp_mixed_precision"], "BFLOAT16");
}

TEST_F(Setup, HyphensAndAnyCaseSayTheSame) {
  EXPECT_EQ(written("deepspeed --zero-stage 3 --offload-param --gradient-clipping 0.3"),
            written("deepspeed --stage 3 --offload_param --gradient_clipping 0.3"));
  EXPECT_EQ(written("fsdp --sharding-strategy shard_grad_op --mixed-precision fp16 --offload-params"),
            written("fsdp --sharding_strategy SHARD_GRAD_OP --mixed_precision FP16 --cpu_offload"));
}

TEST_F(Setup, DeepSpeedsFileIsReadToThePlanOfTheFlags) {
  for (const auto& [stage, strategy] :
       {std::pair(0, Strategy::ddp), {1, Strategy::zero1}, {2, Strategy::zero2}, {3, Strategy::zero3}}) {
    const config::Plan plan = deepspeed_plan("--zero_stage " + std::to_string(stage));
    EXPECT_EQ(plan.distributed.strategy, strategy);
    EXPECT_EQ(plan.training.mixed_precision, config::MixedPrecision::no);
    EXPECT_EQ(plan.distributed.offload_optimizer, config::Offload::none);
    EXPECT_EQ(plan.distributed.bucket_size, 500'000'000);
  }
  config::Plan plan = deepspeed_plan(
      "--zero_stage 3 --offload_optimizer --offload_param --fp16 --gradient_accumulation_steps 4 "
      "--gradient_clipping 0.3 --micro_batch_size 2 --steps_per_print 7 --wall_clock_breakdown --bucket_size 1e6");
  EXPECT_EQ(plan.distributed.offload_optimizer, config::Offload::cpu);
  EXPECT_EQ(plan.distributed.offload_param, config::Offload::cpu);
  EXPECT_EQ(plan.distributed.bucket_size, 1'000'000);
  EXPECT_EQ(plan.training.mixed_precision, config::MixedPrecision::fp16);
  EXPECT_EQ(plan.precision.loss_scale.value_or(0), 0);
  EXPECT_EQ(plan.training.gradient_accumulation_steps, 4);
  EXPECT_EQ(plan.training.micro_batch_size, 2);
  EXPECT_EQ(plan.training.gradient_clipping, 0.3);
  EXPECT_EQ(plan.monitor.log_interval, 7);
  EXPECT_TRUE(plan.monitor.wall_clock_breakdown);
  EXPECT_EQ(deepspeed_plan("--bf16").training.mixed_precision, config::MixedPrecision::bf16);
  EXPECT_EQ(deepspeed_plan("--train_batch_size 32").training.global_batch_size, 32);
}

TEST_F(Setup, WhatTheFlagsOfDeepSpeedLeaveOpenTheConfigurationDecides) {
  written("deepspeed --zero_stage 2");
  const config::Plan plan = plan_with({.deepspeed = file("out.json")},
                                      ", micro_batch_size: 3, gradient_accumulation_steps: 5, gradient_clipping: 2, "
                                      "mixed_precision: bf16");
  EXPECT_EQ(plan.training.micro_batch_size, 3);
  EXPECT_EQ(plan.training.gradient_accumulation_steps, 5);
  EXPECT_EQ(plan.training.gradient_clipping, 2);
  EXPECT_EQ(plan.training.mixed_precision, config::MixedPrecision::bf16);
}

TEST_F(Setup, FsdpsFileIsReadToThePlanOfTheFlags) {
  for (const auto& [word, strategy] : {std::pair("FULL_SHARD", Strategy::full_shard),
                                       {"SHARD_GRAD_OP", Strategy::shard_grad_op},
                                       {"NO_SHARD", Strategy::no_shard},
                                       {"HYBRID_SHARD", Strategy::hybrid_shard}}) {
    EXPECT_EQ(fsdp_plan(std::string("--sharding_strategy ") + word).distributed.strategy, strategy);
  }
  EXPECT_EQ(fsdp_plan("--mixed_precision BFLOAT16").training.mixed_precision, config::MixedPrecision::bf16);
  EXPECT_EQ(fsdp_plan("--mixed_precision FP16").training.mixed_precision, config::MixedPrecision::fp16);
  config::Plan plan = fsdp_plan("--auto_wrap_policy SIZE_BASED_WRAP --min_num_params 5000 --offload_params");
  EXPECT_EQ(plan.distributed.auto_wrap, WrapPolicy::size);
  EXPECT_EQ(plan.distributed.min_num_params, 5000);
  EXPECT_EQ(plan.distributed.offload_param, config::Offload::cpu);
  EXPECT_EQ(fsdp_plan("").distributed.offload_param, config::Offload::none);
  EXPECT_EQ(fsdp_plan("--backward_prefetch BACKWARD_POST").distributed.gather_ahead, 0);
  EXPECT_EQ(fsdp_plan("").distributed.gather_ahead, 1);
  EXPECT_EQ(fsdp_plan("--activation_checkpointing").training.gradient_checkpointing, config::Recompute::full);
}

TEST_F(Setup, MakesFoldersAndKeepsWhatIsThere) {
  for (const auto& [kind, other, path] :
       {std::tuple("deepspeed", "deepspeed --fp16", "config/ds_config.json"),
        std::tuple("fsdp", "fsdp --mixed_precision FP16", "config/fsdp_config.json")}) {
    ASSERT_EQ(setup(kind).exit_code, 0);
    const std::string first = read_file(file(path));
    EXPECT_EQ(setup(kind).exit_code, 0) << "the same again is no loss";
    const ProcessResult kept = setup(other);
    EXPECT_EQ(kept.exit_code, 2);
    EXPECT_NE(kept.err.find(path), std::string::npos) << kept.err;
    EXPECT_NE(kept.err.find("--force"), std::string::npos) << kept.err;
    EXPECT_EQ(read_file(file(path)), first);
    EXPECT_EQ(setup(std::string(other) + " --force").exit_code, 0);
    EXPECT_NE(read_file(file(path)), first);
  }
  std::size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder_.path())) files += entry.is_regular_file() ? 1 : 0;
  EXPECT_EQ(files, 2U) << "no temporary file is left";
  EXPECT_NE(setup("deepspeed --output run.dir/").exit_code, 0);
}

TEST_F(Setup, RefusesWhatDoesNotFitTogetherAndWritesNothing) {
  for (const auto& [arguments, word] : {std::pair("deepspeed --fp16 --bf16", "--fp16"),
                                        {"deepspeed --offload_param", "--zero_stage 3"},
                                        {"deepspeed --zero_stage 0 --offload_optimizer", "--zero_stage 1"},
                                        {"deepspeed --zero_stage 4", "--zero_stage"},
                                        {"deepspeed --gradient_clipping -1", "--gradient_clipping"},
                                        {"fsdp --sharding_strategy HALF", "FULL_SHARD, SHARD_GRAD_OP"},
                                        {"fsdp --mixed_precision INT8", "BFLOAT16"},
                                        {"launcher --config run.yaml", "trireme launch"},
                                        {"slurm", "not yet"},
                                        {"azureml", "not yet"},
                                        {"kubernetes", "not yet"},
                                        {"fsdpp", "trireme setup fsdp"},
                                        {"", "trireme setup deepspeed"}}) {
    const ProcessResult result = setup(arguments);
    EXPECT_EQ(result.exit_code, 2) << arguments;
    EXPECT_NE(result.err.find(word), std::string::npos) << arguments << ": " << result.err;
  }
  EXPECT_TRUE(fs::is_empty(folder_.path()));
}

}  // namespace
}  // namespace trireme::testing
