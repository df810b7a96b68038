// Every key of DeepSpeed's files has one fate, and what a supported one says reaches the plan.
#include <algorithm>
#include <set>

#include "tool_files.h"

namespace trireme::config {
namespace {

struct Flip {
  std::string name;  // as the table spells it
  std::string json;  // a file that gives it
  std::string key, value;
};

std::string in_zero(const std::string& members) {
  return "{\"zero_optimization\": {" + members + "}}";
}

std::string in_adam(const std::string& params) {
  return R"({"optimizer": {"type": "AdamW", "params": {)" + params + "}}}";
}

std::string in_scheduler(const std::string& type, const std::string& params) {
  return R"({"scheduler": {"type": ")" + type + R"(", "params": {)" + params + "}}}";
}

std::string in_sgd(const std::string& params) {
  return R"({"optimizer": {"type": "sgd", "params": {)" + params + "}}}";
}

std::string in_fp16(const std::string& members) {
  return R"({"fp16": {"enabled": true, )" + members + "}}";
}

std::vector<Flip> flips_of_gradients_and_precision() {
  return {
      {"train_batch_size", R"({"train_batch_size": 48})", "training.global_batch_size", "48"},
      {"train_micro_batch_size_per_gpu", R"({"train_micro_batch_size_per_gpu": 3})", "training.micro_batch_size", "3"},
      {"gradient_accumulation_steps", R"({"gradient_accumulation_steps": 5})", "training.gradient_accumulation_steps",
       "5"},
      {"gradient_clipping", R"({"gradient_clipping": 0.25})", "training.gradient_clipping", "0.25"},
      {"communication_data_type", R"({"communication_data_type": "bfp16"})", "training.reduce_dtype", "bf16"},
      {"gradient_allreduce_op", R"({"gradient_allreduce_op": "sum"})", "training.gradient_allreduce_op", "sum"},
      {"fp16.enabled", R"({"fp16": {"enabled": true}})", "training.mixed_precision", "fp16"},
      {"fp16.loss_scale", in_fp16(R"("loss_scale": 128)"), "training.loss_scale", "128"},
      {"fp16.initial_scale_power", in_fp16(R"("initial_scale_power": 12)"), "training.initial_scale_power", "12"},
      {"fp16.loss_scale_window", in_fp16(R"("loss_scale_window": 77)"), "training.loss_scale_window", "77"},
      {"fp16.hysteresis", in_fp16(R"("hysteresis": 3)"), "training.hysteresis", "3"},
      {"fp16.consecutive_hysteresis", in_fp16(R"("consecutive_hysteresis": true)"), "training.consecutive_hysteresis",
       "true"},
      {"fp16.min_loss_scale", in_fp16(R"("min_loss_scale": 4)"), "training.min_loss_scale", "4"},
      {"bf16.enabled", R"({"bfloat16": {"enabled": true}})", "training.mixed_precision", "bf16"},
      {"bf16.check_grad_overflow", R"({"bf16": {"enabled": true, "check_grad_overflow": true}})",
       "training.nonfinite_gradients", "skip"},
      {"bf16.bf16_master_weights_and_grads", R"({"bf16": {"enabled": true, "bf16_master_weights_and_grads": true}})",
       "training.master_dtype", "bf16"},
      {"bf16.bf16_master_weights_and_grads", R"({"bf16": {"enabled": true, "bf16_master_weights_and_grads": true}})",
       "training.grad_accum_dtype", "bf16"},
      {"bf16.bf16_optimizer_states", R"({"bfloat16": {"enabled": true, "bf16_optimizer_states": true}})",
       "training.moment_dtype", "bf16"},
      {"torch_autocast.enabled", R"({"torch_autocast": {"enabled": true}})", "training.mixed_precision", "bf16"},
      {"torch_autocast.dtype", R"({"torch_autocast": {"enabled": true, "dtype": "float16"}})",
       "training.mixed_precision", "fp16"},
      {"data_types.grad_accum_dtype", R"({"data_types": {"grad_accum_dtype": "bf16"}})", "training.grad_accum_dtype",
       "bf16"},
      {"data_types.param_dtype", R"({"data_types": {"param_dtype": "bf16"}})", "training.param_dtype", "bf16"},
      {"steps_per_print", R"({"steps_per_print": 7})", "monitor.log_interval", "7"},
      {"wall_clock_breakdown", R"({"wall_clock_breakdown": true})", "monitor.wall_clock_breakdown", "true"},
      {"tensorboard.enabled", R"({"tensorboard": {"enabled": true}})", "monitor.report_to", "[\"tensorboard\"]"},
      {"activation_checkpointing.cpu_checkpointing", R"({"activation_checkpointing": {"cpu_checkpointing": true}})",
       "training.gradient_checkpointing", "full"},
      {"activation_checkpointing.cpu_checkpointing", R"({"activation_checkpointing": {"cpu_checkpointing": true}})",
       "training.cpu_checkpointing", "true"},
  };
}

std::vector<Flip> flips_of_zero() {
  const std::string zero = "zero_optimization.";
  return {
      {"zero_optimization", R"({"zero_optimization": true})", "distributed.strategy", "zero1"},
      {zero + "stage", in_zero(R"("stage": 1)"), "distributed.strategy", "zero1"},
      {zero + "stage", in_zero(R"("stage": 2)"), "distributed.strategy", "zero2"},
      {zero + "stage", in_zero(R"("stage": 3)"), "distributed.strategy", "zero3"},
      {zero + "overlap_comm", in_zero(R"("overlap_comm": false)"), "distributed.overlap_comm", "false"},
      {zero + "reduce_bucket_size", in_zero(R"("reduce_bucket_size": 5e8)"), "distributed.bucket_size", "500000000"},
      {zero + "allgather_bucket_size", in_zero(R"("allgather_bucket_size": 2e8)"), "distributed.allgather_bucket_size",
       "200000000"},
      {"allgather_size", R"({"zero_optimization": true, "allgather_size": 1000})", "distributed.allgather_bucket_size",
       "1000"},
      {zero + "stage3_prefetch_bucket_size", in_zero(R"("prefetch_bucket_size": 0)"), "distributed.gather_ahead", "0"},
      {zero + "stage3_param_persistence_threshold", in_zero(R"("param_persistence_threshold": 1e5)"),
       "distributed.persistence_threshold", "100000"},
      {zero + "stage3_max_live_parameters", in_zero(R"("stage3_max_live_parameters": 1e9)"),
       "distributed.max_live_parameters", "1000000000"},
      {zero + "stage3_max_reuse_distance", in_zero(R"("max_reuse_distance": 12)"), "distributed.reuse_distance", "12"},
      {zero + "zero_hpz_partition_size", in_zero(R"("stage": 3, "zero_hpz_partition_size": 4)"), "distributed.dp_shard",
       "4"},
      {zero + "mics_shard_size", in_zero(R"("stage": 3, "mics_shard_size": 2)"), "distributed.strategy",
       "hybrid_shard"},
      {zero + "mics_shard_size", in_zero(R"("stage": 3, "mics_shard_size": 2)"), "distributed.dp_shard", "2"},
      {zero + "offload_optimizer.device", in_zero(R"("stage": 2, "offload_optimizer": {"device": "cpu"})"),
       "distributed.offload_optimizer", "cpu"},
      {zero + "offload_param.device", in_zero(R"("stage": 3, "offload_param": {"device": "CPU"})"),
       "distributed.offload_param", "cpu"},
      {zero + "cpu_offload", in_zero(R"("stage": 2, "cpu_offload": true)"), "distributed.offload_optimizer", "cpu"},
      {zero + "cpu_offload_param", in_zero(R"("stage": 3, "cpu_offload_param": true)"), "distributed.offload_param",
       "cpu"},
  };
}

std::vector<Flip> flips_of_optimizers() {
  const std::string params = "optimizer.params.";
  return {
      {"optimizer.type", R"({"optimizer": {"type": "LION"}})", "training.optimizer", "lion"},
      {"optimizer.type", R"({"optimizer": {"type": "Adagrad"}})", "training.adam_eps", "1e-10"},
      {params + "lr", in_adam(R"("lr": 5e-5)"), "training.learning_rate", "5e-05"},
      {params + "betas", in_adam(R"("betas": [0.8, 0.99])"), "training.adam_beta1", "0.8"},
      {params + "betas", in_adam(R"("betas": [0.8, 0.99])"), "training.adam_beta2", "0.99"},
      {params + "eps", in_adam(R"("eps": 1e-6)"), "training.adam_eps", "1e-06"},
      {params + "weight_decay", in_adam(R"("weight_decay": 0.01)"), "training.weight_decay", "0.01"},
      {params + "momentum", in_sgd(R"("momentum": 0.9)"), "training.momentum", "0.9"},
      {params + "nesterov", in_sgd(R"("momentum": 0.9, "nesterov": true)"), "training.nesterov", "true"},
      {params + "initial_accumulator_value",
       R"({"optimizer": {"type": "adagrad", "params": {"initial_accumulator_value": 0.5}}})",
       "training.initial_accumulator_value", "0.5"},
      {params + "adam_w_mode", R"({"optimizer": {"type": "Adam", "params": {"adam_w_mode": false}}})",
       "training.optimizer", "adam"},
  };
}

std::vector<Flip> flips_of_schedulers() {
  const std::string params = "scheduler.params.";
  const auto warm = [](const std::string& members) { return in_scheduler("WarmupLR", members); };
  const auto cosine = [](const std::string& members) { return in_scheduler("WarmupCosineLR", members); };
  const auto cycle = [](const std::string& members) {
    return in_scheduler("OneCycle", R"("cycle_min_lr": 1e-5, "cycle_max_lr": 1e-3, )" + members);
  };
  const auto range = [](const std::string& members) { return in_scheduler("LRRangeTest", members); };
  return {
      {"scheduler.type", warm(""), "training.lr_scheduler", "warmup"},
      {params + "warmup_min_lr", warm(R"("warmup_min_lr": 1e-6)"), "training.warmup_min_learning_rate", "1e-06"},
      {params + "warmup_max_lr", warm(R"("warmup_max_lr": 0.5)"), "training.learning_rate", "0.5"},
      {params + "warmup_num_steps", warm(R"("warmup_num_steps": 100)"), "training.warmup_steps", "100"},
      {params + "warmup_type", warm(R"("warmup_type": "linear")"), "training.warmup_type", "linear"},
      {params + "total_num_steps", in_scheduler("WarmupDecayLR", R"("total_num_steps": 40)"), "training.lr_total_steps",
       "40"},
      {params + "warmup_min_ratio", cosine(R"("warmup_min_ratio": 0.1)"), "training.warmup_min_ratio", "0.1"},
      {params + "cos_min_ratio", cosine(R"("cos_min_ratio": 0.2)"), "training.cos_min_ratio", "0.2"},
      {params + "cycle_min_lr", cycle(""), "training.cycle_min_learning_rate", "1e-05"},
      {params + "cycle_max_lr", cycle(""), "training.learning_rate", "0.001"},
      {params + "cycle_first_step_size", cycle(R"("cycle_first_step_size": 7)"), "training.cycle_first_step_size", "7"},
      {params + "cycle_second_step_size", cycle(R"("cycle_second_step_size": 8)"), "training.cycle_second_step_size",
       "8"},
      {params + "decay_step_size", cycle(R"("decay_step_size": 9)"), "training.decay_step_size", "9"},
      {params + "decay_lr_rate", cycle(R"("decay_lr_rate": 0.5)"), "training.decay_lr_rate", "0.5"},
      {params + "lr_range_test_min_lr", range(R"("lr_range_test_min_lr": 0.01)"),
       "training.range_test_min_learning_rate", "0.01"},
      {params + "lr_range_test_step_size", range(R"("lr_range_test_step_size": 5)"), "training.range_test_step_size",
       "5"},
      {params + "lr_range_test_step_rate", range(R"("lr_range_test_step_rate": 2)"), "training.range_test_step_rate",
       "2"},
      {params + "lr_range_test_staircase", range(R"("lr_range_test_staircase": true)"), "training.range_test_staircase",
       "true"},
  };
}

std::vector<Flip> flips() {
  std::vector<Flip> all;
  for (const auto& part :
       {flips_of_gradients_and_precision(), flips_of_zero(), flips_of_optimizers(), flips_of_schedulers()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

TEST(DeepSpeed, EachSupportedKeyChangesThePlan) {
  const Plan without = plan_of(kSmall);
  for (const Flip& flip : flips()) {
    SCOPED_TRACE(flip.json);
    const Plan with = plan_with_deepspeed(flip.json);
    EXPECT_EQ(value_of(with, flip.key), flip.value);
    EXPECT_NE(value_of(without, flip.key), flip.value) << "nothing is flipped";
    EXPECT_NE(with.origins.at(flip.key).place.find("ds.json"), std::string::npos);
  }
}

// But for a notice alone, no key that counts as supported is left out above.
TEST(DeepSpeed, NoSupportedKeyIsWithoutAFlip) {
  std::set<std::string, std::less<>> flipped = {"zero_optimization.stage3_gather_16bit_weights_on_model_save",
                                                "zero_optimization.cpu_offload_use_pin_memory",
                                                "zero_optimization.offload_optimizer.ratio"};
  for (const Flip& flip : flips()) flipped.insert(flip.name);
  for (const ForeignKey& row : deepspeed_dialect().keys) {
    if (row.fate == Fate::refused || row.fate == Fate::no_effect) continue;
    EXPECT_TRUE(flipped.contains(row.name)) << row.name;
  }
}

std::string some_value(Type type) {
  switch (type) {
    case Type::boolean: return "true";
    case Type::integer: return "3";
    case Type::number: return "0.5";
    case Type::texts: return "[\"x\"]";
    case Type::text: return "\"x\"";
    default: return "1";
  }
}

// Its batch alone means one micro-batch a rank, unless something says how large one is.
TEST(DeepSpeed, ABatchAloneIsNotAccumulated) {
  const char* file = R"({"train_batch_size": 32})";
  EXPECT_EQ(plan_with_deepspeed(file).training.gradient_accumulation_steps, 1);
  EXPECT_FALSE(plan_of(kSmall, {"training.global_batch_size=32"}).training.gradient_accumulation_steps);
  const Plan with_micro = plan_with_deepspeed(file, {"training.micro_batch_size=4"});
  EXPECT_FALSE(with_micro.training.gradient_accumulation_steps);
  EXPECT_EQ(plan_with_deepspeed(R"({"train_batch_size": 32, "gradient_accumulation_steps": 2})")
                .training.gradient_accumulation_steps,
            2);
}

TEST(DeepSpeed, AKeyWithoutEffectSaysSoAndChangesNothing) {
  const std::string without = to_yaml(plan_of(kSmall));
  int seen = 0;
  for (const ForeignKey& row : deepspeed_dialect().keys) {
    if (row.fate != Fate::no_effect || row.doc.empty() || row.name.starts_with("scheduler.")) continue;
    const std::string json = nested(std::string(row.name), some_value(row.type));
    SCOPED_TRACE(json);
    const Plan plan = plan_with_deepspeed(json);
    EXPECT_EQ(to_yaml(plan), without);
    EXPECT_TRUE(has_notice(plan, "ds.json:1:")) << plan.notices.size();
    EXPECT_TRUE(has_notice(plan, std::string(row.name) + " (DeepSpeed) has no effect: " + std::string(row.doc)));
    if (row.type == Type::boolean) {
      EXPECT_NE(refusal_of_deepspeed(nested(std::string(row.name), "[1]")).find("TR2102"), std::string::npos);
    }
    ++seen;
  }
  EXPECT_GT(seen, 50);
}

TEST(DeepSpeed, AKeyOfWhatIsNotHereIsRefusedWhereItIsOnAndToldWhereItIsOff) {
  const std::string without = to_yaml(plan_of(kSmall));
  int seen = 0;
  for (const ForeignKey& row : deepspeed_dialect().keys) {
    if (row.fate != Fate::refused) continue;
    const std::string name(row.name), on = row.off_alone ? "false" : "7";
    const std::string refusal = refusal_of_deepspeed(nested(name, on));
    EXPECT_NE(refusal.find("TR2190"), std::string::npos) << refusal;
    EXPECT_NE(refusal.find(name), std::string::npos) << refusal;
    EXPECT_NE(refusal.find(row.doc), std::string::npos) << refusal;
    if (name.starts_with("scheduler.")) continue;
    std::vector<std::string> offs = {"null", "\"auto\""};
    if (!row.off_alone) offs.insert(offs.end(), {"false", "0"});
    for (const std::string_view word : row.off) offs.emplace_back(word);
    for (const std::string& off : offs) {
      SCOPED_TRACE(name + " " + off);
      const Plan plan = plan_with_deepspeed(nested(name, off));
      EXPECT_EQ(to_yaml(plan), without);
      EXPECT_TRUE(off == "\"auto\"" || has_notice(plan, name)) << "in silence";
    }
    ++seen;
  }
  EXPECT_GT(seen, 40);
}

TEST(DeepSpeed, OtherKeysOfASectionThatIsOffGoWithoutAWord) {
  const Plan plan = plan_with_deepspeed(
      R"({"flops_profiler": {"enabled": false, "profile_step": 1, "module_depth": -1}, "_comment": {"any": "thing"},
          "zero_optimization": {"_stage": 9}})");
  ASSERT_EQ(plan.notices.size(), 1u);
  EXPECT_NE(plan.notices[0].find("flops_profiler.enabled"), std::string::npos);
}

TEST(DeepSpeed, AnUnknownKeyIsAnErrorAtEveryLevelThatNamesTheNearest) {
  const auto expect_suggestion = [](const std::string& json, const std::string& place, const std::string& right) {
    const std::string refusal = refusal_of_deepspeed(json);
    EXPECT_NE(refusal.find("TR2101"), std::string::npos) << refusal;
    EXPECT_NE(refusal.find("ds.json:" + place), std::string::npos) << refusal;
    EXPECT_NE(refusal.find(right), std::string::npos) << refusal;
  };
  expect_suggestion(R"({"gradient_cliping": 1.0})", "1:2", "gradient_clipping");
  expect_suggestion("{\"zero_optimization\":\n {\"stagee\": 1}}", "2:3", "zero_optimization.stage");
  expect_suggestion(in_zero(R"("offload_optimizer": {"devices": "cpu"})"), "1:46", "offload_optimizer.device");
  expect_suggestion(in_adam(R"("weight_decy": 0.1)"), "1:44", "weight_decay");
  expect_suggestion(in_adam(R"("momentum": 0.1)"), "1:44", "it has lr, betas, eps, weight_decay");
  expect_suggestion(in_scheduler("WarmupLR", R"("total_num_steps": 10)"), "1:47", "no parameter of WarmupLR");
  expect_suggestion(R"({"amp": {"enabled": false, "optlevel": "O1"}})", "1:28", "amp.opt_level");
}

}  // namespace
}  // namespace trireme::config
