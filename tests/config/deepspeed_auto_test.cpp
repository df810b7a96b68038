// "auto" of two sizes in DeepSpeed's files follows from the model's width, as transformers' Trainer fills it.
#include "config/explain_file.h"
#include "tool_files.h"

namespace trireme::config {
namespace {

// A file that leaves all sizes open.
std::string auto_of_stage(int stage) {
  return R"({"zero_optimization": {"stage": )" + std::to_string(stage) + R"(, "reduce_bucket_size": "auto",
 "stage3_prefetch_bucket_size": "auto",
 "stage3_param_persistence_threshold": "auto"}})";
}

TEST(DeepSpeedAuto, SizesFollowFromTheWidth) {
  for (const std::int64_t width : {8, 64, 4096}) {
    const Plan plan = plan_with_deepspeed(auto_of_stage(3), {"model.hidden_size=" + std::to_string(width)});
    EXPECT_FALSE(plan.distributed.bucket_size) << "a unit is one message";
    EXPECT_EQ(plan.distributed.persistence_threshold, 10 * width);
    EXPECT_EQ(plan.distributed.gather_ahead, 1);
    EXPECT_NE(plan.origins.at("distributed.persistence_threshold").place.find("ds.json:3:2"), std::string::npos);
  }
}

// 0.9 of the smallest square is no element.
TEST(DeepSpeedAuto, WhatIsGatheredAheadIsRoundedDown) {
  const Overrides narrow = {"model.hidden_size=1", "model.num_heads=1", "model.head_dim=2"};
  EXPECT_EQ(plan_with_deepspeed(auto_of_stage(3), narrow).distributed.gather_ahead, 0);
}

TEST(DeepSpeedAuto, BelowStage3NothingFollowsFromIt) {
  const Plan plan = plan_with_deepspeed(auto_of_stage(2), {"distributed.gather_ahead=3"});
  EXPECT_FALSE(plan.distributed.bucket_size);
  EXPECT_EQ(plan.distributed.gather_ahead, 3);
  EXPECT_EQ(plan.distributed.persistence_threshold, 0);
  EXPECT_TRUE(plan.origins.at("distributed.persistence_threshold").is_default);
}

TEST(DeepSpeedAuto, WhatIsSetElsewhereWins) {
  const std::string yaml = kSmall + "distributed:\n  bucket_size: 100\n";
  const Plan plan = plan_with_deepspeed(auto_of_stage(3), {"distributed.persistence_threshold=7"}, yaml);
  EXPECT_EQ(plan.distributed.bucket_size, 100);
  EXPECT_EQ(plan.distributed.persistence_threshold, 7);
  EXPECT_EQ(plan.origins.at("distributed.bucket_size").place, "run.yaml:10:3");
}

TEST(DeepSpeedAuto, ExplainSaysHow) {
  const std::string text = explain_file(auto_of_stage(3), "ds.json");
  for (const char* line : {"distributed.gather_ahead = 1 for 0.9 hidden_size^2 elements, rounded down, unless set",
                           "distributed.persistence_threshold = 10 hidden_size, unless set elsewhere"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << " is not in\n" << text;
  }
  EXPECT_NE(explain_file(auto_of_stage(2), "ds.json").find("auto: left to our keys"), std::string::npos);
}

// The folder of model.path has the width, which is read later.
TEST(DeepSpeedAuto, SizesWaitForTheFolderOfAModel) {
  const std::string yaml = "model:\n  path: folder\ndata:\n  path: tokens\ntraining:\n  max_steps: 10\n";
  Plan plan = plan_with_deepspeed(auto_of_stage(3), {}, yaml);
  ModelPlan model = plan_of(kSmall).model;
  model.hidden_size = 320;
  fill_from_model(plan, model, "config.json");
  EXPECT_EQ(plan.distributed.persistence_threshold, 3200);
  const Plan again = plan_of(to_yaml(plan));
  EXPECT_EQ(again.distributed, plan.distributed) << "the resolved plan has the numbers";
}

}  // namespace
}  // namespace trireme::config
