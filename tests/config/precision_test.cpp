// The types of gradients, and what happens where they overflow.
#include "helpers.h"

namespace trireme::config {
namespace {

bool is_refused(const Overrides& overrides, const std::string& fragment) {
  const auto error = error_of(kSmall, overrides);
  if (!error) return false;
  EXPECT_EQ(error->code(), 2104) << error->what();
  EXPECT_NE(std::string(error->what()).find(fragment), std::string::npos) << error->what();
  return true;
}

TEST(Precision, StandardIsFp32AndStopsAtWhatIsNotFinite) {
  const PrecisionPlan precision = plan_of(kSmall).precision;
  EXPECT_FALSE(precision.param_dtype);
  EXPECT_EQ(precision.reduce_dtype, ElementType::fp32);
  EXPECT_EQ(precision.grad_accum_dtype, ElementType::fp32);
  EXPECT_EQ(precision.gradient_allreduce_op, GradientOp::mean);
  EXPECT_EQ(precision.nonfinite_gradients, NonFiniteGradients::stop);
  EXPECT_EQ(precision.initial_scale_power, 16);
  EXPECT_EQ(precision.loss_scale_window, 1000);
  EXPECT_EQ(precision.hysteresis, 2);
  EXPECT_FALSE(precision.consecutive_hysteresis);
  EXPECT_EQ(precision.min_loss_scale, 1);
}

TEST(Precision, TypesAreReadByTheNamesOfOtherTools) {
  for (const char* text :
       {"training.reduce_dtype=bf16", "training.reduce_dtype=bfloat16", "training.communication_data_type=bfp16",
        "distributed.fsdp_reduce_dtype=bfloat16", "training.mixed_precision_reduce=bfloat16"}) {
    EXPECT_EQ(plan_of(kSmall, {text}).precision.reduce_dtype, ElementType::bf16) << text;
  }
  EXPECT_EQ(plan_of(kSmall, {"training.grad_accum_dtype=bf16"}).precision.grad_accum_dtype, ElementType::bf16);
  EXPECT_EQ(plan_of(kSmall, {"training.gradient_allreduce_op=sum"}).precision.gradient_allreduce_op, GradientOp::sum);
  EXPECT_TRUE(has_notice(plan_of(kSmall, {"training.buffer_dtype=bf16"}), "no effect: these models have no buffers"));
  EXPECT_TRUE(has_notice(plan_of(kSmall, {"distributed.fsdp_buffer_dtype=float32"}), "these models have no buffers"));
}

TEST(Precision, ParamDtypeIsMixedPrecisionByAnotherName) {
  EXPECT_EQ(plan_of(kSmall, {"training.param_dtype=bfloat16"}).training.mixed_precision, MixedPrecision::bf16);
  EXPECT_EQ(plan_of(kSmall, {"training.param_dtype=float32"}).training.mixed_precision, MixedPrecision::no);
  const Plan both = plan_of(kSmall, {"training.param_dtype=bf16", "training.mixed_precision=bf16"});
  EXPECT_EQ(both.training.mixed_precision, MixedPrecision::bf16);
  EXPECT_TRUE(is_refused({"training.param_dtype=fp32", "training.mixed_precision=bf16"},
                         "training.param_dtype is fp32, but mixed_precision is bf16"));
  EXPECT_TRUE(is_refused({"training.param_dtype=bf16", "training.mixed_precision=no"}, "leave one of them out"));
  const Plan again = plan_of(to_yaml(both));
  EXPECT_EQ(again.precision, both.precision);
  EXPECT_EQ(numeric_digest(again), numeric_digest(plan_of(kSmall, {"training.mixed_precision=bf16"})));
}

TEST(Precision, ALossScaleWithoutFp16IsRefused) {
  EXPECT_TRUE(is_refused({"training.loss_scale=1024"}, "only fp16 needs one (mixed_precision is no)"));
  EXPECT_TRUE(is_refused({"training.loss_scale=0.5", "training.mixed_precision=bf16"}, "mixed_precision is bf16"));
  for (const char* text : {"training.loss_scale=0", "training.loss_scale=1", "training.loss_scale=null"}) {
    EXPECT_NO_THROW(plan_of(kSmall, {text})) << text;
  }
  EXPECT_TRUE(has_notice(plan_of(kSmall, {"training.hysteresis=3"}),
                         "training.hysteresis has no effect: mixed_precision no does not use it"));
  EXPECT_FALSE(has_notice(plan_of(to_yaml(plan_of(kSmall))), "does not use it"));
}

TEST(Precision, Fp16SkipsAndFindsItsScale) {
  const Plan plan = plan_of(kSmall, {"training.param_dtype=fp16", "training.loss_scale=0"});
  EXPECT_EQ(plan.training.mixed_precision, MixedPrecision::fp16);
  EXPECT_EQ(plan.precision.nonfinite_gradients, NonFiniteGradients::skip);
  EXPECT_TRUE(is_refused({"training.fp16=true", "training.nonfinite_gradients=stop"}, "found by steps that overflow"));
  EXPECT_TRUE(is_refused({"training.fp16=true", "training.min_loss_scale=512", "training.initial_scale_power=8"},
                         "above the first scale of 2 to the power of 8"));
  const Plan fixed = plan_of(kSmall, {"training.fp16=true", "training.loss_scale=512",
                                      "training.nonfinite_gradients=stop", "training.hysteresis=3"});
  EXPECT_EQ(fixed.precision.nonfinite_gradients, NonFiniteGradients::stop);
  EXPECT_TRUE(has_notice(fixed, "training.hysteresis has no effect: a fixed loss_scale does not use it"));
  EXPECT_FALSE(has_notice(plan_of(to_yaml(plan)), "does not use it"));
  EXPECT_EQ(error_of(kSmall, {"training.grad_accum_dtype=fp16"})->code(), 2102);
}

TEST(Precision, MastersInBf16NeedItsComputation) {
  const Overrides both = {"training.mixed_precision=bf16", "training.master_dtype=bfloat16"};
  EXPECT_EQ(plan_of(kSmall, both).precision.master_dtype, ElementType::bf16);
  for (const char* text : {"training.mixed_precision=no", "training.mixed_precision=fp16"}) {
    EXPECT_TRUE(is_refused({text, "training.master_dtype=bf16"}, "training.master_dtype is bf16, but mixed_precision"));
    EXPECT_EQ(plan_of(kSmall, {text, "training.moment_dtype=bf16"}).precision.moment_dtype, ElementType::bf16);
  }
  EXPECT_EQ(error_of(kSmall, {"training.master_dtype=fp16"})->code(), 2102);
  EXPECT_EQ(error_of(kSmall, {"training.moment_dtype=fp16"})->code(), 2102);
}

TEST(Precision, RoundingWithoutSmallerMessagesIsANotice) {
  const char* const notice = "sends no fewer bytes: ddp sends sums once a step";
  EXPECT_TRUE(has_notice(plan_of(kSmall, {"training.reduce_dtype=bf16"}), notice));
  EXPECT_FALSE(
      has_notice(plan_of(kSmall, {"training.reduce_dtype=bf16", "training.reduce_each_micro_batch=true"}), notice));
  EXPECT_FALSE(has_notice(plan_of(kSmall, {"training.reduce_dtype=bf16", "distributed.strategy=zero2"}), notice));
}

TEST(Precision, DecidesTheDigestOnlyWhereItChangesNumbers) {
  const std::string standard = numeric_digest(plan_of(kSmall));
  for (const char* text : {"training.reduce_dtype=bf16", "training.grad_accum_dtype=bf16",
                           "training.gradient_allreduce_op=sum", "training.nonfinite_gradients=skip"}) {
    EXPECT_NE(numeric_digest(plan_of(kSmall, {text})), standard) << text;
  }
  for (const char* text : {"training.hysteresis=3", "training.loss_scale=1", "training.min_loss_scale=4"}) {
    EXPECT_EQ(numeric_digest(plan_of(kSmall, {text})), standard) << text;
  }
}

}  // namespace
}  // namespace trireme::config
