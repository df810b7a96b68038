// What the plan says of optimizer and law reaches the engine and the law.
#include "train/resolve.h"

#include <gtest/gtest.h>

#include <algorithm>
#include "config/tool_files.h"

#include "train/tiny_run.h"

namespace trireme::testing {
namespace {

train::ResolvedRun resolved(const std::vector<std::string>& overrides) {
  return train::resolve(tiny_plan({.output_dir = "unused", .overrides = overrides}), {300, 1000}, 1);
}

TEST(Resolve, HandsTheOptimizersOptionsOn) {
  const optim::OptimizerOptions lion =
      resolved({"training.optimizer=lion", "training.adam_beta1=0.8"}).engine.optimizer;
  EXPECT_EQ(lion.kind, config::Optimizer::lion);
  EXPECT_EQ(lion.beta1, 0.8);
  EXPECT_EQ(lion.beta2, 0.99);
  EXPECT_EQ(lion.weight_decay, 0.1);
  const optim::OptimizerOptions sgd =
      resolved({"training.optimizer=sgd", "training.momentum=0.7", "training.nesterov=true"}).engine.optimizer;
  EXPECT_EQ(sgd.momentum, 0.7);
  EXPECT_TRUE(sgd.nesterov);
  EXPECT_EQ(sgd.weight_decay, 0);
  const optim::OptimizerOptions adagrad =
      resolved({"training.optimizer=adagrad", "training.initial_accumulator_value=0.2"}).engine.optimizer;
  EXPECT_EQ(adagrad.initial_accumulator_value, 0.2);
  EXPECT_EQ(adagrad.eps, 1e-10);
}

// Not where the bits of any number of ranks are promised.
TEST(Resolve, GradientsAreAddedInPlaceOnDevicesThatReduceOnceAStep) {
  const auto in_place = [](std::vector<std::string> overrides, int ranks = 1) {
    TinyRun run{.ranks = ranks, .reduce_each_micro_batch = false, .bf16 = true, .output_dir = "unused"};
    run.overrides = std::move(overrides);
    const train::ResolvedRun resolved = train::resolve(tiny_plan(run), {300, 1000}, ranks);
    const bool in_float = std::get<LlamaConfig>(resolved.model).float_gradients;
    EXPECT_EQ(in_float, engine::may_add_in_place(resolved.engine) && resolved.engine.accumulator_dtype == DType::f32);
    return engine::may_add_in_place(resolved.engine);
  };
  const std::string cuda = "training.device=cuda";
  EXPECT_FALSE(in_place({}));
  EXPECT_TRUE(in_place({cuda}));
  EXPECT_TRUE(in_place({cuda, "training.grad_accum_dtype=bf16"}));
  EXPECT_FALSE(in_place({cuda, "training.reduce_each_micro_batch=true"}));
  EXPECT_FALSE(in_place({cuda, "distributed.strategy=full_shard"}));
  EXPECT_TRUE(in_place({cuda}, 2));
  EXPECT_TRUE(in_place({cuda, "distributed.strategy=zero1"}, 2));
  EXPECT_FALSE(in_place({cuda, "distributed.strategy=zero2"}, 2));
  EXPECT_FALSE(in_place({cuda}, 4)) << "each rank has one micro-batch, which is reduced as it is";
}

TEST(Resolve, TheLossIsChunkedAsTheDeviceOrTheConfigurationHasIt) {
  const auto chunk = [](const std::vector<std::string>& overrides) {
    return std::get<LlamaConfig>(resolved(overrides).model).loss_chunk_tokens;
  };
  EXPECT_EQ(chunk({}), 1024);
  EXPECT_EQ(chunk({"training.device=cuda"}), 4096);
  EXPECT_EQ(chunk({"training.device=cuda", "training.loss_chunk_tokens=7"}), 7);
}

// As PyTorch shards without sizes: within a machine, with the machines as replicas.
TEST(Resolve, HybridShardWithoutSizesShardsWithinAMachine) {
  const auto hybrid = [](const train::Ranks& ranks) {
    const config::Plan plan = tiny_plan(
        {.output_dir = "unused", .overrides = {"distributed.strategy=hybrid_shard", "training.global_batch_size=24"}});
    return train::resolve(plan, {300, 1000}, ranks);
  };
  const auto says = [](const train::ResolvedRun& run, const std::string& words) {
    return std::any_of(run.notices.begin(), run.notices.end(),
                       [&](const std::string& notice) { return notice.find(words) != std::string::npos; });
  };
  const train::ResolvedRun two = hybrid({6, "WORLD_SIZE", 3});
  EXPECT_EQ(two.engine.replicas, 2);
  EXPECT_TRUE(says(two, "among the 3 ranks of a machine, and 2 machines are replicas"));
  const train::ResolvedRun one = hybrid({4, "--nproc-per-node"});
  EXPECT_EQ(one.engine.replicas, 1);
  EXPECT_TRUE(says(one, "there is one machine, so it equals full_shard"));
  try {
    hybrid({6, "WORLD_SIZE", 4});
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), 2211);
    EXPECT_NE(error.message().find("6 ranks are not a multiple of the 4 on this one"), std::string::npos);
  }
}

TEST(Resolve, HandsTheLawsParametersOn) {
  const auto rates = [](std::vector<std::string> overrides, const std::string& law) {
    overrides.push_back("training.lr_scheduler=" + law);
    const optim::Law made = resolved(overrides).law;
    std::vector<double> all;
    for (int step = 1; step <= 12; ++step) all.push_back(learning_rate(made, step));
    return all;
  };
  const auto near = [](const std::vector<double>& rates, const std::vector<double>& expected) {
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(rates[i], expected[i], 1e-12) << "step " << i + 1;
  };
  // Steps 1 and 2 have the rate of the start; the run has 20 steps.
  const std::vector<std::string> warmup = {"training.learning_rate=1", "training.warmup_steps=4",
                                           "training.warmup_type=linear", "training.warmup_min_learning_rate=0.2"};
  near(rates(warmup, "warmup"), {0.2, 0.2, 0.4, 0.6, 0.8, 1, 1});
  near(rates(warmup, "warmup_decay"), {0.2, 0.2, 0.4, 0.6, 0.8, 1, 0.2 + 0.8 * 15 / 16});
  std::vector<std::string> sooner = warmup;
  sooner.emplace_back("training.lr_total_steps=8");
  near(rates(sooner, "warmup_decay"), {0.2, 0.2, 0.4, 0.6, 0.8, 1, 0.8, 0.6, 0.4, 0.2, 0.2});
  sooner.emplace_back("training.warmup_min_ratio=0.5");
  sooner.emplace_back("training.cos_min_ratio=0.1");
  near(rates(sooner, "warmup_cosine"),
       {0, 0.5, 0.625, 0.75, 0.875, 0.1 + 0.9 * 0.8535533905932737, 0.55, 0.1 + 0.9 * 0.1464466094067263, 0.1, 0.1});
  near(rates({"training.learning_rate=5", "training.cycle_min_learning_rate=1", "training.cycle_first_step_size=2",
              "training.cycle_second_step_size=4", "training.decay_step_size=2", "training.decay_lr_rate=0.5"},
             "one_cycle"),
       {1, 3, 5, 4, 3, 2, 1, 1 / 1.25, 1 / 1.5});
  near(rates({"training.range_test_min_learning_rate=2", "training.range_test_step_size=2",
              "training.range_test_step_rate=0.5"},
             "lr_range_test"),
       {2, 2.5, 3, 3.5, 4});
  near(rates({"training.range_test_min_learning_rate=2", "training.range_test_step_size=2",
              "training.range_test_step_rate=0.5", "training.range_test_staircase=true"},
             "lr_range_test"),
       {2, 2, 3, 3, 4});
}

// transformers 35484: the file left the accumulation to the command line's 2, and the cosine ran twice as long.
TEST(Resolve, TheLawOfAFileOfDeepSpeedIsAsLongAsTheRun) {
  const std::string yaml =
      "model: {hidden_size: 64, num_layers: 2, num_heads: 4}\ndata: {path: tokens}\n"
      "training: {num_epochs: 1, micro_batch_size: 1}\n";
  const config::Plan plan = config::plan_with_deepspeed(
      R"({"scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": "auto", "warmup_num_steps": 10}}})",
      {"training.gradient_accumulation_steps=2"}, yaml);
  const train::ResolvedRun run = train::resolve(plan, {.vocabulary = 257, .num_samples = 1000}, 2, std::nullopt);
  EXPECT_EQ(run.total_steps, 250);
  EXPECT_EQ(run.law.total_steps, 250);
}

}  // namespace
}  // namespace trireme::testing
