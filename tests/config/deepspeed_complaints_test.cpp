// What users of DeepSpeed reported about its configuration, and what happens here instead.
#include "tool_files.h"

namespace trireme::config {
namespace {

void expect_words(const std::string& text, std::initializer_list<const char*> words) {
  for (const char* word : words) EXPECT_NE(text.find(word), std::string::npos) << word << " is not in\n" << text;
}

// deepspeedai/DeepSpeed 653, 774, 1809: a mistyped key of clipping was passed over, and the run trained without it.
TEST(DeepSpeedComplaints, AMistypedClippingIsAnErrorWithTheNearestKey) {
  expect_words(refusal_of_deepspeed("{\"gradient_clippin\": 1.0}"), {"TR2101", "ds.json:1:2", "gradient_clipping"});
  expect_words(refusal_of_deepspeed("{\"gradientclipping\": 1.0}"), {"TR2101", "gradient_clipping"});
}

// DeepSpeed 6525, LlamaFactory 5252: an "auto" became a size with a fraction, and that was refused. Two keys follow
// from the width of the model; each other "auto" is as if left out.
TEST(DeepSpeedComplaints, AutoIsNeverAnInvalidValue) {
  const std::string without = to_yaml(plan_of(kSmall));
  for (const ForeignKey& row : deepspeed_dialect().keys) {
    if (row.name.starts_with("scheduler.") || row.name.starts_with("optimizer.")) continue;
    SCOPED_TRACE(row.name);
    EXPECT_EQ(to_yaml(plan_with_deepspeed(nested(std::string(row.name), "\"auto\""))), without);
  }
}

// transformers 35484: the file had no accumulation, the command line had 2, and the cosine ran twice.
TEST(DeepSpeedComplaints, WhatTheFileLeavesOutIsLeftToTheConfiguration) {
  const Plan plan = plan_with_deepspeed(R"({"scheduler": {"type": "WarmupCosineLR", "params": {}}})",
                                        {"training.gradient_accumulation_steps=2", "training.warmup_steps=3"});
  EXPECT_EQ(plan.training.gradient_accumulation_steps, 2);
  EXPECT_EQ(plan.training.warmup_steps, 3);
  EXPECT_FALSE(plan.law.lr_total_steps) << "the law ends with the run";
}

// QwenLM/Qwen 672, transformers 24359: the file's scheduler silently overrode the command line's.
TEST(DeepSpeedComplaints, TwoSchedulersAreOneErrorThatNamesBoth) {
  expect_words(
      refusal_of_deepspeed(R"({"scheduler": {"type": "WarmupLR", "params": {}}})", {"training.lr_scheduler=cosine"}),
      {"TR2111", "command line", "cosine", "ds.json:1:16", "warmup", "keep one of them",
       "\"auto\" in the other tool's file leaves the value"});
  const Plan plan = plan_with_deepspeed(R"({"optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}})",
                                        {"training.lr_scheduler=linear"});
  EXPECT_EQ(plan.training.lr_scheduler, LearningRateLaw::linear) << "an optimizer alone needs no scheduler";
}

// LlamaFactory 986: min_loss_scale 0.5.
TEST(DeepSpeedComplaints, ALossScaleMayFallBelowOne) {
  EXPECT_EQ(plan_with_deepspeed(R"({"fp16": {"enabled": true, "min_loss_scale": 0.5}})").precision.min_loss_scale, 0.5);
}

// DeepSpeed 7837: bf16 at stage 0 divided by the scale of fp16.
TEST(DeepSpeedComplaints, Bf16HasNoLossScaleWhateverTheFileSaysOfFp16) {
  const Plan plan = plan_with_deepspeed(
      R"({"bf16": {"enabled": true}, "fp16": {"enabled": false, "loss_scale": 128}, "zero_optimization": {"stage": 0}})");
  EXPECT_EQ(plan.training.mixed_precision, MixedPrecision::bf16);
  EXPECT_FALSE(plan.precision.loss_scale);
  EXPECT_TRUE(has_notice(plan, "fp16.loss_scale (DeepSpeed) has no effect: fp16 is off"));
  expect_words(refusal_of_deepspeed(R"({"bf16": {"enabled": true}, "fp16": {"enabled": true}})"),
               {"TR2104", "bf16.enabled", "fp16.enabled", "ds.json:1:49"});
}

// What the file switches off is not switched on elsewhere without a word.
TEST(DeepSpeedComplaints, ATypeThatTheFileRulesOutIsAConflict) {
  const std::string off = R"({"fp16": {"enabled": false}})";
  expect_words(refusal_of_deepspeed(off, {"training.mixed_precision=fp16"}),
               {"TR2111", "command line", "fp16.enabled is false", "ds.json:1:11"});
  EXPECT_EQ(plan_with_deepspeed(off, {"training.mixed_precision=bf16"}).training.mixed_precision, MixedPrecision::bf16);
  const std::string is_auto = R"({"fp16": {"enabled": "auto"}})";
  EXPECT_EQ(plan_with_deepspeed(is_auto, {"training.mixed_precision=fp16"}).training.mixed_precision,
            MixedPrecision::fp16);
}

// DeepSpeed 493, 668, 5214: which decay Adam has was not to be seen.
TEST(DeepSpeedComplaints, TheKindOfDecayIsInThePlan) {
  const std::string adam = R"({"optimizer": {"type": "Adam", "params": {"lr": 1e-3)";
  const Plan decoupled = plan_with_deepspeed(adam + "}}}");
  EXPECT_EQ(decoupled.training.optimizer, Optimizer::adamw);
  EXPECT_EQ(decoupled.training.weight_decay, 0);
  EXPECT_TRUE(decoupled.origins.at("training.weight_decay").is_default);
  EXPECT_TRUE(has_notice(decoupled, "is read as adamw"));
  EXPECT_EQ(plan_with_deepspeed(adam + R"(, "adam_w_mode": false}}})").training.optimizer, Optimizer::adam);
  EXPECT_EQ(plan_with_deepspeed(adam + "}}}", {"training.weight_decay=0.3"}).training.weight_decay, 0.3);
}

// The scheduler's peak wins over the optimizer's rate, and says so.
TEST(DeepSpeedComplaints, OneRateIsToldWhereTwoAreGiven) {
  const auto with_peak = [](const std::string& peak) {
    return plan_with_deepspeed(R"({"optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
      "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": )" +
                               peak + "}}}");
  };
  EXPECT_EQ(with_peak("2e-3").training.learning_rate, 2e-3);
  EXPECT_TRUE(has_notice(with_peak("2e-3"), "optimizer.params.lr (DeepSpeed) has no effect"));
  EXPECT_FALSE(has_notice(with_peak("1e-3"), "optimizer.params.lr"));
}

}  // namespace
}  // namespace trireme::config
