// Arguments of Hugging Face's Trainer in a configuration, at the top or below training: each is read, without effect,
// or refused with the reason.
#include "helpers.h"

namespace trireme::config {
namespace {

std::string at_the_top(const std::string& argument) {
  return kSmall + argument + "\n";
}

std::string below_training(const std::string& argument) {
  return kSmall + "  " + argument + "\n";
}

TEST(TrainerArguments, ThoseWithoutEffectSaySo) {
  for (const char* argument : {"per_device_eval_batch_size: 2",
                               "logging_dir: logs",
                               "logging_first_step: true",
                               "data_seed: 1",
                               "overwrite_output_dir: true",
                               "tf32: true",
                               "gradient_checkpointing_kwargs: {use_reentrant: false}",
                               "metric_for_best_model: loss",
                               "greater_is_better: false",
                               "hub_model_id: me/mine",
                               "disable_tqdm: true",
                               "log_level: info",
                               "use_cpu: true",
                               "no_cuda: true",
                               "include_num_input_tokens_seen: true",
                               "do_eval: true",
                               "use_liger_kernel: true",
                               "full_determinism: true",
                               "eval_accumulation_steps: 2",
                               "prediction_loss_only: true",
                               "length_column_name: length",
                               "torch_empty_cache_steps: 5",
                               "remove_unused_columns: false"}) {
    const std::string name = std::string(argument).substr(0, std::string(argument).find(':'));
    for (const std::string& yaml : {at_the_top(argument), below_training(argument)}) {
      EXPECT_TRUE(has_notice(plan_of(yaml), name + " has no effect")) << yaml;
    }
  }
}

TEST(TrainerArguments, WhatIsNotHereIsRefusedUnlessItIsOff) {
  const std::pair<const char*, std::pair<const char*, const char*>> arguments[] = {
      {"eval_strategy", {"epoch", "steps"}},
      {"eval_strategy", {"epoch", "no"}},
      {"evaluation_strategy", {"epoch", "steps"}},
      {"save_strategy", {"epoch", "steps"}},
      {"save_strategy", {"best", "steps"}},
      {"logging_strategy", {"epoch", "steps"}},
      {"eval_on_start", {"true", "false"}},
      {"eval_delay", {"10", "0"}},
      {"load_best_model_at_end", {"true", "false"}},
      {"push_to_hub", {"true", "false"}},
      {"save_only_model", {"true", "false"}},
      {"save_on_each_node", {"true", "false"}},
      {"ignore_data_skip", {"true", "false"}},
      {"group_by_length", {"true", "false"}},
      {"auto_find_batch_size", {"true", "false"}},
      {"average_tokens_across_devices", {"false", "true"}},
      {"bf16_full_eval", {"true", "false"}},
      {"fp16_full_eval", {"true", "false"}},
      {"neftune_noise_alpha", {"5", "null"}},
      {"optim_args", {"a=1", "null"}},
      {"lr_scheduler_kwargs", {"{num_cycles: 2}", "null"}},
      {"do_train", {"false", "true"}},
      {"do_predict", {"true", "false"}},
      {"ddp_backend", {"nccl", "gloo"}},
      {"warmup_ratio", {"0.1", "0"}}};
  for (const auto& [name, values] : arguments) {
    const auto& [on, off] = values;
    for (const auto place : {at_the_top, below_training}) {
      const bool has_own_block = std::string(name) == "ddp_backend" && place == at_the_top;
      if (has_own_block) continue;  // only below training, as its other names
      const std::optional<Error> error = error_of(place(std::string(name) + ": " + on));
      ASSERT_TRUE(error) << name;
      EXPECT_EQ(error->code(), 2190) << error->what();
      EXPECT_NO_THROW(plan_of(place(std::string(name) + ": " + off))) << name << ": " << off;
    }
  }
}

// A file as a script of Trainer's would have it.
TEST(TrainerArguments, AFileOfThemIsAPlan) {
  const Plan plan = plan_of(
      kSmall +
      "  output_dir: out\n  run_name: mine\n  num_train_epochs: 3\n  per_device_train_batch_size: 4\n"
      "  per_device_eval_batch_size: 4\n  gradient_accumulation_steps: 2\n  learning_rate: 2e-5\n"
      "  lr_scheduler_type: cosine\n  warmup_steps: 10\n  weight_decay: 0.01\n  adam_beta1: 0.8\n  adam_beta2: 0.95\n"
      "  adam_epsilon: 1e-7\n  max_grad_norm: 0.5\n  optim: adamw_torch\n  bf16: true\n  fp16: false\n  seed: 42\n"
      "  eval_strategy: steps\n  eval_steps: 50\n  save_strategy: steps\n  save_steps: 100\n  save_total_limit: 2\n"
      "  logging_strategy: steps\n  logging_steps: 5\n  dataloader_num_workers: 2\n  report_to: none\n"
      "  gradient_checkpointing: true\n  remove_unused_columns: false\n  load_best_model_at_end: false\n");
  EXPECT_EQ(plan.name, "mine");
  EXPECT_EQ(plan.output_dir, "out");
  EXPECT_EQ(plan.training.num_epochs, 3);
  EXPECT_EQ(plan.training.micro_batch_size, 4);
  EXPECT_EQ(plan.training.adam_beta2, 0.95);
  EXPECT_EQ(plan.training.adam_eps, 1e-7);
  EXPECT_EQ(plan.training.gradient_clipping, 0.5);
  EXPECT_EQ(plan.training.mixed_precision, MixedPrecision::bf16);
  EXPECT_EQ(plan.training.eval_interval, 50);
  EXPECT_EQ(plan.checkpoint.save_interval, 100);
  EXPECT_EQ(plan.checkpoint.keep, 2);
  EXPECT_EQ(plan.monitor.log_interval, 5);
  EXPECT_EQ(plan.data.num_workers, 2);
  EXPECT_EQ(plan.training.gradient_checkpointing, Recompute::full);
}

}  // namespace
}  // namespace trireme::config
