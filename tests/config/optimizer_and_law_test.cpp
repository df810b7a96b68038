// What the choice of optimizer and law makes of the other keys.
#include "helpers.h"

namespace trireme::config {
namespace {

TEST(Plans, OptimizersHaveDefaultsOfTheirOwn) {
  const auto training = [](const std::string& name) { return plan_of(kSmall, {name}).training; };
  for (const char* text : {"training.optimizer=adamw", "training.optim=adamw_torch", "training.optim=adamw_torch_fused",
                           "training.optimizer=AdamW", "training.seed=0"}) {
    EXPECT_EQ(training(text).optimizer, Optimizer::adamw) << text;
    EXPECT_EQ(training(text).weight_decay, 0.1) << text;
    EXPECT_EQ(training(text).adam_beta2, 0.95) << text;
    EXPECT_EQ(training(text).adam_eps, 1e-8) << text;
  }
  EXPECT_EQ(training("training.optimizer=Adam").weight_decay, 0);
  EXPECT_EQ(training("training.optim=sgd").optimizer, Optimizer::sgd);
  EXPECT_EQ(training("training.optimizer=SGD").weight_decay, 0);
  EXPECT_EQ(training("training.optimizer=Adagrad").adam_eps, 1e-10);
  EXPECT_EQ(training("training.optimizer=Lion").adam_beta2, 0.99);
  EXPECT_EQ(training("training.optimizer=Lion").weight_decay, 0.1);
}

TEST(Plans, DeepSpeedsLawsAreReadByItsNames) {
  const Plan plan = plan_of(kSmall +
                            "  lr_scheduler: WarmupDecayLR\n  warmup_min_lr: 1e-5\n  warmup_max_lr: 1e-2\n"
                            "  warmup_num_steps: 3\n  warmup_type: linear\n  total_num_steps: 9\n");
  EXPECT_EQ(plan.training.lr_scheduler, LearningRateLaw::warmup_decay);
  EXPECT_EQ(plan.training.learning_rate, 1e-2);
  EXPECT_EQ(plan.training.warmup_steps, 3);
  EXPECT_EQ(plan.law.warmup_min_learning_rate, 1e-5);
  EXPECT_EQ(plan.law.warmup_type, WarmupType::linear);
  EXPECT_EQ(plan.law.lr_total_steps, 9);
  EXPECT_EQ(plan.notices.size(), 4u) << "only the four other names";
  const Plan cycle = plan_of(kSmall, {"training.lr_scheduler=OneCycle", "training.cycle_min_lr=1e-4",
                                      "training.cycle_max_lr=1e-2", "training.cycle_first_step_size=30"});
  EXPECT_EQ(cycle.training.learning_rate, 1e-2);
  EXPECT_EQ(cycle.law.cycle_min_learning_rate, 1e-4);
  EXPECT_EQ(cycle.law.cycle_second_step_size, 30);
  const Plan test = plan_of(kSmall, {"training.lr_scheduler=LRRangeTest", "training.lr_range_test_staircase=true"});
  EXPECT_TRUE(test.law.range_test_staircase);
  EXPECT_EQ(test.law.range_test_step_size, 2000);
  EXPECT_EQ(plan_of(kSmall, {"training.lr_scheduler=WarmupLR"}).training.warmup_steps, 1000);
  EXPECT_EQ(plan_of(kSmall, {"training.lr_scheduler=WarmupCosineLR"}).law.cos_min_ratio, 1e-4);
}

TEST(Plans, KeysThatTheLawDoesNotUseAreANotice) {
  const auto notices = [](const Overrides& overrides) { return plan_of(kSmall, overrides); };
  EXPECT_TRUE(has_notice(notices({"training.warmup_type=linear"}), "cosine does not use it"));
  EXPECT_TRUE(has_notice(notices({"training.lr_scheduler=constant", "training.min_learning_rate=1e-5"}),
                         "min_learning_rate has no effect: constant does not use it"));
  EXPECT_TRUE(has_notice(notices({"training.lr_scheduler=lr_range_test", "training.learning_rate=1"}),
                         "lr_range_test does not use it"));
  EXPECT_TRUE(has_notice(notices({"training.lr_scheduler=warmup_decay", "training.lr_total_steps=9"}),
                         "is below warmup_steps 1000"));
  for (const char* law : {"constant", "linear", "cosine", "warmup", "warmup_decay", "warmup_cosine", "lr_range_test"}) {
    const Plan resolved = plan_of(to_yaml(plan_of(kSmall, {std::string("training.lr_scheduler=") + law})));
    EXPECT_FALSE(has_notice(resolved, "does not use it")) << law;
  }
}

TEST(Plans, KeysThatTheOptimizerDoesNotUseAreANotice) {
  const Plan plan = plan_of(kSmall + "  optimizer: sgd\n  adam_beta1: 0.8\n  adam_eps: 1e-8\n  sgd_momentum: 0.9\n");
  EXPECT_TRUE(has_notice(plan, "run.yaml:10:3: training.adam_beta1 has no effect: sgd does not use it"));
  EXPECT_EQ(plan.notices.size(), 2u);  // the other: sgd_momentum is Megatron's name
  EXPECT_TRUE(has_notice(plan_of(kSmall, {"training.momentum=0.5"}), "adamw does not use it"));
  for (const char* name : {"adamw", "adam", "sgd", "adagrad", "lion"}) {
    const Plan resolved = plan_of(to_yaml(plan_of(kSmall, {std::string("training.optimizer=") + name})));
    EXPECT_FALSE(has_notice(resolved, "does not use it")) << name;
  }
}

}  // namespace
}  // namespace trireme::config
