// Settings that were ignored or misread, and memory that grew where it should not.
#include <algorithm>

#include "complaints/support.h"
#include "engine/engine.h"
#include "models/model.h"
#include "support/expect_error.h"
#include "train/dry_run.h"
#include "train/resolve.h"

namespace trireme::testing {
namespace {

config::Plan plan_with(const std::vector<std::string>& overrides) {
  return tiny_plan(with({.output_dir = "run"}, overrides));
}

std::string description(const TinyRun& run) {
  const TemporaryFolder folder;
  TinyRun at = run;
  at.output_dir = folder.path() / "run";
  return train::describe_run(tiny_plan(at), run.ranks, 0).text;
}

// DS#653, DS#774, DS#1809: a misspelt key for clipping was ignored, and the run trained without it.
TEST(Complaints, AMisspeltKeyIsAnErrorThatNamesTheRightOne) {
  const std::string text = expect_error(2101, [] { plan_with({"training.gradient_cliping=1"}); });
  EXPECT_NE(text.find("gradient_clipping"), std::string::npos) << text;
}

// DS#3228, bigcode-project/starcoder#41: the batch was checked against one process where there were eight.
TEST(Complaints, BatchArithmeticKnowsTheRanksAndNamesAllFactors) {
  const config::Plan plan = tiny_plan({.micro_batches = 4, .micro_batch_size = 2, .output_dir = "run"});
  EXPECT_EQ(train::resolve(plan, {257, 1000}, 4, std::nullopt).engine.split.rounds(), 1);
  const std::string text = expect_error(2210, [&] { train::resolve(plan, {257, 1000}, 8, std::nullopt); });
  EXPECT_NE(text.find("global batch 8 = micro_batch_size 2 x 4 micro-batches: too few for 8 ranks"), std::string::npos)
      << text;
}

// nanotron#250: axes whose product was not the number of processes.
TEST(Complaints, AxesThatDoNotMakeTheRanksNameTheFactorings) {
  const auto refusal = [](const std::vector<std::string>& axes, int ranks) {
    std::vector<std::string> overrides = axes;
    overrides.push_back("distributed.strategy=hybrid_shard");
    const config::Plan plan = plan_with(overrides);
    return expect_error(2211, [&] { train::resolve(plan, {257, 1000}, ranks, std::nullopt); });
  };
  const std::string both = refusal({"distributed.dp_shard=3", "distributed.dp_replicate=2"}, 4);
  EXPECT_NE(both.find("2 x dp_shard 3 = 6, but there are 4 ranks"), std::string::npos) << both;
  EXPECT_NE(both.find("may be 1 x 4, 2 x 2 or 4 x 1"), std::string::npos) << both;
  const std::string one = refusal({"distributed.dp_replicate=3"}, 2);
  EXPECT_NE(one.find("is 3, but there are 2 ranks"), std::string::npos) << one;
  EXPECT_NE(one.find("may be 1 x 2 or 2 x 1"), std::string::npos) << one;
}

// QwenLM/Qwen#672, TF#24359, DS#4846: of two schedulers one won silently.
TEST(Complaints, TheCommandLineWinsOverTheFileAndTwiceTheSameKeyIsAnError) {
  const config::Plan plan = plan_with({"training.lr_scheduler=linear"});  // the file says cosine
  EXPECT_EQ(plan.training.lr_scheduler, config::LearningRateLaw::linear);
  EXPECT_EQ(plan.origins.at("training.lr_scheduler").place, "command line: training.lr_scheduler=linear");
  expect_error(2103, [] { plan_with({"training.lr_scheduler=linear", "training.lr_scheduler=constant"}); });
}

// DS#493, DS#668, DS#5214: nobody could see whether the decay was Adam's or AdamW's.
TEST(Complaints, ThePlanSaysWhichDecayThereIs) {
  const auto line = [](const std::string& optimizer) {
    return config::to_yaml(plan_with({"training.optimizer=" + optimizer})).find("optimizer: \"" + optimizer + "\"");
  };
  EXPECT_NE(line("adam"), std::string::npos);
  EXPECT_NE(line("adamw"), std::string::npos);
  const auto digest = [](const char* optimizer) {
    return train_tiny(with({.steps = 3}, {std::string("training.optimizer=") + optimizer, "training.weight_decay=0.5"}))
        .weights_digest;
  };
  EXPECT_NE(digest("adam"), digest("adamw"));
}

// AC#2275, AC#1844, netease-youdao/BCEmbedding#66: fsdp_backward_prefetch_policy was taken and did nothing.
TEST(Complaints, TheBackwardPrefetchPolicyDecidesHowFarIsGatheredAhead) {
  for (const char* name : {"fsdp_backward_prefetch", "fsdp_backward_prefetch_policy"}) {
    const config::Plan none = plan_with({std::string("distributed.") + name + "=NO_PREFETCH"});
    EXPECT_EQ(none.distributed.gather_ahead, 0);
    EXPECT_NE(none.origins.at("distributed.gather_ahead").place.find(name), std::string::npos);
    EXPECT_EQ(plan_with({std::string("distributed.") + name + "=BACKWARD_PRE"}).distributed.gather_ahead, 1);
  }
}

// AC#1943, AC#3201, AC#2872, AC#3748, hiyouga/LlamaFactory#8279: the layer to wrap was not found, and whether a list
// was wanted or a word stood nowhere.
TEST(Complaints, WrapNamesAreAWordOrAListAndTheErrorListsWhatThereIs) {
  EXPECT_EQ(plan_with({"distributed.wrap_names=layers.*"}).distributed.wrap_names,
            plan_with({"distributed.wrap_names=[layers.*]"}).distributed.wrap_names);
  const std::string text = expect_error(2290, [] {
    description(with({}, {"distributed.auto_wrap=by_name", "distributed.wrap_names=[GPT2Block]"}));
  });
  EXPECT_NE(text.find("its units are embed, layers.0, layers.1, head"), std::string::npos) << text;
}

// TT#4259: a pattern for a group of parameters that matched nothing was hidden, or an error where it should be none.
TEST(Complaints, PatternsAreHeldAgainstTheWholeModel) {
  for (const int ranks : {1, 4}) {
    TinyRun run = with({}, {"training.freeze=[model.layers.1.*]", "distributed.strategy=zero3"});
    run.ranks = ranks;
    EXPECT_NE(description(run).find("9 of 20 tensors"), std::string::npos) << description(run);
    run.overrides[0] = "training.freeze=[model.layers.2.*]";
    expect_error(2291, [&] { description(run); });
  }
}

// DS#6525, hiyouga/LlamaFactory#5252: a size that followed from others was no whole number, and was refused.
TEST(Complaints, SizesInScientificNotationAreWholeNumbers) {
  EXPECT_EQ(plan_with({"distributed.reduce_bucket_size=5e8"}).distributed.bucket_size, 500000000);
  EXPECT_EQ(plan_with({"distributed.stage3_max_live_parameters=1e9"}).distributed.max_live_parameters, 1000000000);
  const std::string text = expect_error(2102, [] { plan_with({"distributed.reduce_bucket_size=943718.4"}); });
  EXPECT_NE(text.find("integer"), std::string::npos) << text;
}

// MG#1784, MG#1849, MG#1276: estimates of memory were wrong or missing.
TEST(Complaints, ThePlanSaysWhatEachRankTakes) {
  const TinyRun run = with({}, {"distributed.strategy=zero2"});
  for (const char* owner : {"weights", "optimizer state", "gradient accumulators", "gradient slots",
                            "saved for backward", "activations", "workspace", "all"}) {
    EXPECT_NE(description(run).find(std::string("\n  ") + owner + "  "), std::string::npos) << owner;
  }
}

LlamaConfig model_of(int layers) {
  LlamaConfig config;
  config.vocabulary = 1000, config.hidden_size = 64, config.intermediate_size = 192, config.num_layers = layers;
  config.num_heads = 4, config.num_key_value_heads = 2, config.max_positions = 128;
  return config;
}

constexpr schedule::Sharding kFullShard{.parameters = true, .gradients = true, .optimizer = true};

// PT#179128, PT#179443: hybrid sharding kept a buffer of reduction for each layer.
TEST(Complaints, CommunicationTakesTheSameMemoryInADeeperModel) {
  const auto arena = [](int layers) {
    const Chain chain = make_chain(model_of(layers), DType::f32);
    return engine::plan_step(
               chain,
               {.micro_batch = {2, 128}, .split = {8, 4}, .sharding = kFullShard, .replicas = 2, .recompute_every = 1},
               0)
        .program()
        .arena_bytes;
  };
  const std::int64_t boundary = 2 * 128 * 64 * 4;
  EXPECT_EQ(arena(24) - arena(8), 16 * boundary) << "each layer keeps its input and nothing else";
}

// TT#735, PT#147168: what was in flight piled up in memory.
TEST(Complaints, AccumulationTakesNoMemory) {
  const Chain chain = make_chain(model_of(4), DType::bf16);
  const auto arena = [&](int micro_batches) {
    return engine::plan_step(chain, {.micro_batch = {2, 128}, .split = {micro_batches, 2}, .sharding = kFullShard}, 0)
        .program()
        .arena_bytes;
  };
  EXPECT_EQ(arena(64), arena(4));
}

}  // namespace
}  // namespace trireme::testing
