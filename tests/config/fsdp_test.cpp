// FSDP's options, in each of their places and spellings, become keys of ours or say why not.
#include "tool_folder.h"

namespace trireme::config {
namespace {

Plan fsdp_plan(const std::string& json, const std::string& more = "", const Overrides& overrides = {}) {
  const ToolFolder folder;
  return parse_plan(kSmall + more, "run.yaml", overrides, {.fsdp = folder.write("fsdp.json", json)});
}

std::optional<Error> fsdp_error(const std::string& json, const std::string& more = "",
                                const Overrides& overrides = {}) {
  try {
    fsdp_plan(json, more, overrides);
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "accepted: " << json;
  return std::nullopt;
}

Plan block_plan(const std::string& keys) {
  return plan_of(kSmall + "distributed: {" + keys + "}\n");
}

TEST(Fsdp, AFileAloneIsFullShard) {
  EXPECT_EQ(plan_of(kSmall).distributed.strategy, Strategy::ddp);
  const Plan plan = fsdp_plan(R"({"fsdp_version": 2})");
  EXPECT_EQ(plan.distributed.strategy, Strategy::full_shard);
  EXPECT_TRUE(has_notice(plan, "turns FSDP on"));
  EXPECT_EQ(fsdp_plan(R"({"fsdp_version": 2})", "", {"distributed.strategy=zero2"}).distributed.strategy,
            Strategy::zero2)
      << "only unless a strategy says otherwise";
}

TEST(Fsdp, StrategiesAreReadInEachSpelling) {
  const std::pair<const char*, Strategy> spellings[] = {{R"("FULL_SHARD")", Strategy::full_shard},
                                                        {R"("full_shard")", Strategy::full_shard},
                                                        {R"("full-shard")", Strategy::full_shard},
                                                        {"1", Strategy::full_shard},
                                                        {R"("1")", Strategy::full_shard},
                                                        {"2", Strategy::shard_grad_op},
                                                        {R"("SHARD_GRAD_OP")", Strategy::shard_grad_op},
                                                        {"3", Strategy::no_shard},
                                                        {R"("No_Shard")", Strategy::no_shard},
                                                        {"4", Strategy::hybrid_shard},
                                                        {R"("HYBRID_SHARD")", Strategy::hybrid_shard},
                                                        {"5", Strategy::hybrid_shard},
                                                        {R"("HYBRID_SHARD_ZERO2")", Strategy::hybrid_shard}};
  for (const auto& [word, strategy] : spellings) {
    for (const char* prefix : {"fsdp_", ""}) {
      const Plan plan = fsdp_plan("{\"" + std::string(prefix) + "sharding_strategy\": " + word + "}");
      EXPECT_EQ(plan.distributed.strategy, strategy) << prefix << word;
    }
  }
  EXPECT_EQ(fsdp_plan(R"({"fsdp_sharding_strategy": 4})").distributed.reuse_distance, 0);
  EXPECT_EQ(fsdp_plan(R"({"fsdp_sharding_strategy": 5})").distributed.reuse_distance, 1'000'000'000'000'000)
      << "ZERO2 keeps what is gathered until the backward";
  const auto error = fsdp_error(R"({"fsdp_sharding_strategy": "FULL_SHAD"})");
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), 2102);
  EXPECT_NE(error->remedy().find("full_shard"), std::string::npos) << error->what();
}

TEST(Fsdp, ReshardingIsTheStrategyWhereTheVersionSaysSo) {
  const auto strategy = [](const std::string& keys) { return fsdp_plan("{" + keys + "}").distributed.strategy; };
  EXPECT_EQ(strategy(R"("fsdp_version": 2, "fsdp_reshard_after_forward": false)"), Strategy::shard_grad_op);
  EXPECT_EQ(strategy(R"("fsdp_version": 2, "fsdp_reshard_after_forward": true)"), Strategy::full_shard);
  EXPECT_EQ(strategy(R"("fsdp_reshard_after_forward": false)"), Strategy::shard_grad_op) << "a bool is version 2's";
  EXPECT_EQ(strategy(R"("fsdp_version": 1, "fsdp_reshard_after_forward": false)"), Strategy::full_shard);
  EXPECT_EQ(strategy(R"("fsdp_version": 1, "fsdp_reshard_after_forward": "SHARD_GRAD_OP")"), Strategy::shard_grad_op);
  EXPECT_EQ(strategy(R"("fsdp_version": 1, "sharding_strategy": 3, "reshard_after_forward": true)"),
            Strategy::no_shard);
  EXPECT_EQ(strategy(R"("fsdp_version": 2, "sharding_strategy": 3, "reshard_after_forward": false)"),
            Strategy::no_shard);
  const Plan hybrid = fsdp_plan(R"({"fsdp_version": 2, "sharding_strategy": 4, "reshard_after_forward": false})");
  EXPECT_GT(hybrid.distributed.reuse_distance, 0);
  const auto error = fsdp_error(R"({"version": 2, "sharding_strategy": 1, "reshard_after_forward": false})");
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), 2103);
  EXPECT_NE(error->message().find("fsdp_sharding_strategy"), std::string::npos) << error->what();
  EXPECT_EQ(fsdp_error(R"({"fsdp_version": 3})")->code(), 2102);
  EXPECT_EQ(fsdp_error(R"({"fsdp_reshard_after_forward": "maybe"})")->code(), 2102);
}

TEST(Fsdp, WrapPoliciesAndTheirBound) {
  const auto wrapping = [](const std::string& keys) { return fsdp_plan("{" + keys + "}").distributed; };
  for (const char* word : {"TRANSFORMER_BASED_WRAP", "transformer_based_wrap", "transformer_auto_wrap"}) {
    EXPECT_EQ(wrapping(R"("fsdp_auto_wrap_policy": ")" + std::string(word) + "\"").auto_wrap, WrapPolicy::transformer);
  }
  for (const char* word : {"SIZE_BASED_WRAP", "size_based_auto_wrap"}) {
    const DistributedPlan d =
        wrapping(R"("fsdp_min_num_params": 1e6, "fsdp_auto_wrap_policy": ")" + std::string(word) + "\"");
    EXPECT_EQ(d.auto_wrap, WrapPolicy::size);
    EXPECT_EQ(d.min_num_params, 1000000);
  }
  EXPECT_EQ(wrapping(R"("auto_wrap_policy": "SIZE_BASED_WRAP")").min_num_params, 100000000) << "accelerate's default";
  EXPECT_EQ(wrapping(R"("auto_wrap_policy": "SIZE_BASED_WRAP", "min_num_params": 0)").auto_wrap, WrapPolicy::none);
  EXPECT_EQ(wrapping(R"("auto_wrap_policy": "NO_WRAP", "min_num_params": 7)").auto_wrap, WrapPolicy::none);
  EXPECT_EQ(wrapping(R"("min_num_params": 7)").auto_wrap, WrapPolicy::size) << "as transformers, without a policy";
  EXPECT_EQ(wrapping(R"("min_num_params": 0)").auto_wrap, WrapPolicy::transformer);

  const Plan bound = fsdp_plan(R"({"auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "min_num_params": 1000000})");
  EXPECT_EQ(bound.distributed.auto_wrap, WrapPolicy::size);
  EXPECT_EQ(bound.distributed.min_num_params, 1000000);
  EXPECT_TRUE(has_notice(bound, "is a lower bound"));
  const Plan no_bound = fsdp_plan(R"({"auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "min_num_params": 0})");
  EXPECT_EQ(no_bound.distributed.auto_wrap, WrapPolicy::transformer);
}

// Blocks above the bound stay by themselves, smaller ones join: what the policy with a bound promises.
TEST(Fsdp, ALowerBoundJoinsOnlyBlocksThatAreSmaller) {
  const std::vector<ParameterSpec> parameters = {{"a", 1, 10}, {"b", 1, 10}, {"c", 1, 10}, {"d", 1, 10}};
  const std::vector<std::vector<int>> units = {{0}, {1}, {2}, {3}};
  const std::vector<std::string> names = {"embed", "layers.0", "layers.1", "head"};
  const auto sets = [&](std::int64_t bound) {
    const Plan plan =
        fsdp_plan(R"({"auto_wrap_policy": "transformer_auto_wrap", "min_num_params": )" + std::to_string(bound) + "}");
    return wrap_units({.policy = plan.distributed.auto_wrap, .min_elements = plan.distributed.min_num_params},
                      parameters, units, names);
  };
  EXPECT_EQ(sets(10), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(sets(11), (std::vector<int>{0, 0, 1, 1}));
  EXPECT_EQ(sets(0), (std::vector<int>{0, 1, 2, 3}));
}

TEST(Fsdp, OneOfTheWrapClassesMustBeTheModels) {
  const std::string key = R"({"fsdp_transformer_layer_cls_to_wrap": )";
  const Plan list = fsdp_plan(key + R"(["LlamaDecoderLayer", "MistralDecoderLayer"]})");
  EXPECT_EQ(list.distributed.wrap_classes, (std::vector<std::string>{"LlamaDecoderLayer", "MistralDecoderLayer"}));
  EXPECT_TRUE(has_notice(list, "MistralDecoderLayer has no effect: no class of a llama model"));
  EXPECT_EQ(fsdp_plan(key + R"("LlamaDecoderLayer , MistralDecoderLayer"})").distributed.wrap_classes,
            list.distributed.wrap_classes)
      << "text with commas is trimmed";
  EXPECT_FALSE(has_notice(fsdp_plan(key + R"("LlamaDecoderLayer"})"), "no class of"));
  EXPECT_EQ(fsdp_plan(key + R"("GPT2Block"})", "", {"model.family=gpt2"}).distributed.auto_wrap,
            WrapPolicy::transformer);
  const auto error = fsdp_error(key + R"("GPT2Block,BertLayer"})");
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), 2104);
  EXPECT_NE(error->message().find("GPT2Block, BertLayer"), std::string::npos) << error->what();
  EXPECT_NE(error->remedy().find("LlamaDecoderLayer"), std::string::npos) << error->what();
  EXPECT_TRUE(error->place().ends_with("fsdp.json:1:2")) << error->place();
}

TEST(Fsdp, NoWrapClassIsAnEmptyTextButNotOneInAList) {
  const std::string key = "distributed.fsdp_transformer_layer_cls_to_wrap=";
  EXPECT_EQ(plan_of(kSmall, {key + "\"\""}).distributed.auto_wrap, plan_of(kSmall).distributed.auto_wrap);
  EXPECT_EQ(error_of(kSmall, {key + "[LlamaDecoderLayer, \"\"]"})->code(), 2102);
}

TEST(Fsdp, WrapClassesOfAFolderAreCheckedWhenItIsRead) {
  const std::pair<const char*, const char*> classes[] = {
      {"mistral", "MistralDecoderLayer"}, {"qwen2", "Qwen2DecoderLayer"},   {"qwen3", "Qwen3DecoderLayer"},
      {"gemma", "GemmaDecoderLayer"},     {"gemma2", "Gemma2DecoderLayer"}, {"gemma3_text", "Gemma3DecoderLayer"}};
  for (const auto& [family, name] : classes) {
    const std::string yaml = "model: {path: there}\ndata: {path: tokens}\ntraining: {max_steps: 1}\n";
    ModelPlan model = plan_of(kSmall).model;
    model.family = family;
    Plan plan = plan_of(yaml + "fsdp_transformer_layer_cls_to_wrap: " + name + "\n");
    EXPECT_NO_THROW(fill_from_model(plan, model, "config.json")) << family;
    Plan wrong = plan_of(yaml + "fsdp_transformer_layer_cls_to_wrap: GPT2Block\n");
    EXPECT_THROW(fill_from_model(wrong, model, "config.json"), Error) << family;
  }
}

TEST(Fsdp, TypesOfMixedPrecision) {
  const auto mixed = [](const std::string& keys) { return fsdp_plan("{" + keys + "}").training.mixed_precision; };
  for (const char* word : {"BFLOAT16", "bfloat16", "BF16", "bf16"}) {
    EXPECT_EQ(mixed(R"("fsdp_mixed_precision": ")" + std::string(word) + "\""), MixedPrecision::bf16) << word;
  }
  for (const char* word : {"FP16", "fp16", "float16", "FLOAT16"}) {
    EXPECT_EQ(mixed(R"("mixed_precision": ")" + std::string(word) + "\""), MixedPrecision::fp16) << word;
  }
  EXPECT_EQ(mixed(R"("fsdp_mixed_precision": "FULL")"), MixedPrecision::no);
  EXPECT_EQ(mixed(R"("fsdp_mixed_precision": false)"), MixedPrecision::no);
  EXPECT_EQ(mixed(R"("fsdp_mixed_precision": true)"), MixedPrecision::bf16);
  EXPECT_EQ(mixed(R"("fsdp_mixed_precision": true, "fsdp_param_dtype": "float16")"), MixedPrecision::fp16);
  EXPECT_EQ(mixed(R"("fsdp_mixed_precision": false, "fsdp_param_dtype": "float16")"), MixedPrecision::no);
  EXPECT_EQ(fsdp_plan(R"({"fsdp_mixed_precision": true})", "  fp16: true\n").training.mixed_precision,
            MixedPrecision::fp16);
  EXPECT_EQ(fsdp_plan(R"({"fsdp_mixed_precision": true})", "  param_dtype: fp16\n").training.mixed_precision,
            MixedPrecision::fp16);
  const Plan types = fsdp_plan(R"({"mixed_precision_policy": {"param_dtype": "bfloat16", "reduce_dtype": "BF16"}})");
  EXPECT_EQ(types.training.mixed_precision, MixedPrecision::bf16);
  EXPECT_EQ(types.precision.reduce_dtype, ElementType::bf16);
  EXPECT_EQ(fsdp_error(R"({"fsdp_mixed_precision": "FULL"})", "  bf16: true\n")->code(), 2111);
  EXPECT_EQ(fsdp_error(R"({"fsdp_mixed_precision": "int8"})")->code(), 2102);
}

TEST(Fsdp, PrefetchIsHowFarAheadIsGathered) {
  const auto ahead = [](const std::string& keys) { return fsdp_plan("{" + keys + "}").distributed.gather_ahead; };
  for (const char* name : {"fsdp_backward_prefetch", "backward_prefetch", "fsdp_backward_prefetch_policy"}) {
    const std::string key = "\"" + std::string(name) + "\": ";
    EXPECT_EQ(ahead(key + R"("BACKWARD_PRE")"), 1) << name;
    EXPECT_EQ(ahead(key + R"("backward_pre")"), 1) << name;
    EXPECT_EQ(ahead(key + R"("BACKWARD_POST")"), 0) << name;
    EXPECT_EQ(ahead(key + R"("NO_PREFETCH")"), 0) << name;
    EXPECT_EQ(ahead(key + R"("NO_PREFETCH", "forward_prefetch": true)"), 1) << name;
    EXPECT_EQ(ahead(key + R"("NO_PREFETCH", "forward_prefetch": false)"), 0) << name;
    EXPECT_EQ(fsdp_error("{" + key + R"("BACKWARDS"})")->code(), 2102);
  }
}

// Complaint 29: the old name was taken in silence and did nothing.
TEST(Fsdp, TheOldNameOfBackwardPrefetchWorksWithANotice) {
  const Plan plan = fsdp_plan(R"({"fsdp_backward_prefetch_policy": "BACKWARD_POST"})");
  EXPECT_EQ(plan.distributed.gather_ahead, 0);
  EXPECT_TRUE(has_notice(plan, "is the old name of fsdp_backward_prefetch"));
  EXPECT_FALSE(has_notice(fsdp_plan(R"({"fsdp_backward_prefetch": "BACKWARD_POST"})"), "old name"));
  EXPECT_EQ(
      fsdp_error(R"({"fsdp_backward_prefetch_policy": "BACKWARD_POST", "backward_prefetch": "backward_pre"})")->code(),
      2103);
}

TEST(Fsdp, OffloadAndRecomputationAreOurs) {
  const Plan plan = fsdp_plan(R"({"fsdp_offload_params": true, "activation_checkpointing": true})");
  EXPECT_EQ(plan.distributed.offload_param, Offload::cpu);
  EXPECT_EQ(plan.training.gradient_checkpointing, Recompute::full);
  const Plan off = fsdp_plan(R"({"fsdp_offload_params": "false", "fsdp_activation_checkpointing": false})");
  EXPECT_EQ(off.distributed.offload_param, Offload::none);
  EXPECT_EQ(off.training.gradient_checkpointing, Recompute::none);
}

TEST(Fsdp, InputsOfRecomputedBlocksAreOffloadedOnlyWithThem) {
  EXPECT_TRUE(fsdp_plan(R"({"activation_checkpointing": true, "fsdp_activation_checkpointing_offload": true})")
                  .training.cpu_checkpointing);
  EXPECT_EQ(fsdp_error(R"({"activation_checkpointing_offload": true})")->code(), 2104);
}

// As transformers and accelerate write them.
TEST(Fsdp, BooleansMayBeTexts) {
  EXPECT_EQ(fsdp_plan(R"({"forward_prefetch": "true", "backward_prefetch": "NO_PREFETCH"})").distributed.gather_ahead,
            1);
  EXPECT_TRUE(fsdp_plan(R"({"activation_checkpointing": "true", "activation_checkpointing_offload": "True"})")
                  .training.cpu_checkpointing);
  EXPECT_EQ(fsdp_error(R"({"forward_prefetch": "maybe"})")->code(), 2102);
}

TEST(Fsdp, CheckpointsAreWholeWhateverTheTypeOfStateDict) {
  for (const char* word : {"FULL_STATE_DICT", "SHARDED_STATE_DICT", "LOCAL_STATE_DICT", "sharded_state_dict", "3"}) {
    EXPECT_TRUE(has_notice(fsdp_plan(R"({"fsdp_state_dict_type": ")" + std::string(word) + "\"}"),
                           "saved whole until sharded checkpoints exist"))
        << word;
  }
  EXPECT_EQ(fsdp_error(R"({"fsdp_state_dict_type": "WHOLE"})")->code(), 2102);
}

TEST(Fsdp, KeysWithoutEffectSayWhy) {
  for (const char* name : {"use_orig_params", "sync_module_states", "cpu_ram_efficient_loading", "limit_all_gathers"}) {
    for (const char* value : {"true", "false"}) {
      const Plan plan = fsdp_plan("{\"fsdp_" + std::string(name) + "\": " + value + "}");
      EXPECT_TRUE(has_notice(plan, "fsdp_" + std::string(name) + " (FSDP) has no effect: ")) << name;
    }
  }
  EXPECT_TRUE(has_notice(fsdp_plan(R"({"fsdp_buffer_dtype": "float32"})"), "these models have no buffers"));
  EXPECT_TRUE(has_notice(fsdp_plan(R"({"fsdp_version": 2})"), "keys of both versions"));
}

TEST(Fsdp, WhatWeCannotDoIsRefusedWhereItIsOn) {
  for (const char* on : {R"("fsdp_ignored_modules": ["head"])", R"("fsdp_cuda_graphs": true)", R"("xla": true)",
                         R"("xla_fsdp_v2": true)", R"("xla_fsdp_settings": {"x": 1})", R"("xla_fsdp_grad_ckpt": true)",
                         R"("mixed_precision_policy": {"output_dtype": "fp32"})", R"("param_init_fn": "f")"}) {
    const auto error = fsdp_error("{" + std::string(on) + "}");
    ASSERT_TRUE(error) << on;
    EXPECT_EQ(error->code(), 2190) << error->what();
  }
  for (const char* off : {R"("fsdp_ignored_modules": null)", R"("fsdp_cuda_graphs": false)", R"("xla": false)"}) {
    EXPECT_TRUE(has_notice(fsdp_plan("{" + std::string(off) + "}"), "changes nothing as")) << off;
  }
}

TEST(Fsdp, AConflictNamesBothPlaces) {
  const auto error = fsdp_error(R"({"fsdp_sharding_strategy": "FULL_SHARD"})", "", {"distributed.strategy=ddp"});
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), 2111);
  EXPECT_NE(error->place().find("distributed.strategy=ddp"), std::string::npos);
  EXPECT_NE(error->message().find("fsdp.json:1:2"), std::string::npos) << error->what();
  EXPECT_EQ(fsdp_plan(R"({"fsdp_sharding_strategy": "FULL_SHARD"})", "", {"distributed.strategy=full_shard"})
                .distributed.strategy,
            Strategy::full_shard);
}

TEST(FsdpKeys, StandInTheConfigurationItself) {
  const Plan plan = block_plan(
      "use_fsdp: true, fsdp_sharding_strategy: shard_grad_op, fsdp_backward_prefetch: backward_post, "
      "fsdp_auto_wrap_policy: size_based_auto_wrap, fsdp_min_num_params: 5");
  EXPECT_EQ(plan.distributed.strategy, Strategy::shard_grad_op);
  EXPECT_EQ(plan.distributed.gather_ahead, 0);
  EXPECT_EQ(plan.distributed.auto_wrap, WrapPolicy::size);
  EXPECT_EQ(plan.distributed.min_num_params, 5);
  EXPECT_EQ(plan.origins.at("distributed.min_num_params").place.substr(0, 10), "run.yaml:9");
}

TEST(FsdpKeys, ASwitchAloneIsFullShard) {
  EXPECT_EQ(block_plan("use_fsdp: true").distributed.strategy, Strategy::full_shard);
  EXPECT_EQ(block_plan("use_fsdp: true, strategy: zero3").distributed.strategy, Strategy::zero3);
  EXPECT_EQ(block_plan("use_fsdp: false").distributed.strategy, Strategy::ddp);
  const Plan off =
      block_plan("use_fsdp: false, fsdp_sharding_strategy: FULL_SHARD, fsdp_activation_checkpointing: true");
  EXPECT_EQ(off.distributed.strategy, Strategy::ddp);
  EXPECT_EQ(off.training.gradient_checkpointing, Recompute::none);
  EXPECT_TRUE(has_notice(off, "keys of FSDP have no effect: use_fsdp is false"));
  EXPECT_EQ(error_of(kSmall + "distributed: {use_fsdp: perhaps}\n")->code(), 2102);
}

TEST(FsdpKeys, AtTheTopTheyTurnFsdpOn) {
  const Plan plan = plan_of(kSmall + "fsdp_backward_prefetch: backward_post\n");
  EXPECT_EQ(plan.distributed.strategy, Strategy::full_shard);
  EXPECT_EQ(plan.distributed.gather_ahead, 0);
  EXPECT_TRUE(has_notice(plan, "run.yaml:9:1: fsdp_backward_prefetch (FSDP) turns FSDP on"));
}

TEST(FsdpKeys, TheCommandLineWinsOverTheConfigurationButNotOverAFile) {
  const std::string block = "distributed: {fsdp_sharding_strategy: FULL_SHARD}\n";
  EXPECT_EQ(plan_of(kSmall + block, {"distributed.fsdp_sharding_strategy=2"}).distributed.strategy,
            Strategy::shard_grad_op);
  EXPECT_EQ(plan_of(kSmall + block, {"distributed.strategy=ddp"}).distributed.strategy, Strategy::ddp);
  EXPECT_EQ(
      plan_of(kSmall + "distributed: {strategy: ddp}\n", {"distributed.fsdp_sharding_strategy=2"}).distributed.strategy,
      Strategy::shard_grad_op);
  EXPECT_EQ(plan_of(kSmall, {"distributed.use_fsdp=true"}).distributed.strategy, Strategy::full_shard);
  EXPECT_EQ(error_of(kSmall + "distributed: {fsdp_sharding_strategy: FULL_SHARD, strategy: ddp}\n")->code(), 2111);
  EXPECT_EQ(fsdp_error(R"({"sharding_strategy": 1})", "", {"distributed.fsdp_sharding_strategy=2"})->code(), 2103);
}

TEST(FsdpKeys, TheWordsOfTransformers) {
  const auto plan = [](const std::string& words) { return plan_of(kSmall + "  fsdp: " + words + "\n"); };
  EXPECT_EQ(plan("full_shard auto_wrap").distributed.strategy, Strategy::full_shard);
  EXPECT_EQ(plan("\"hybrid_shard_zero2 auto_wrap\"").distributed.reuse_distance, 1'000'000'000'000'000);
  EXPECT_EQ(plan("[shard_grad_op, offload]").distributed.strategy, Strategy::shard_grad_op);
  EXPECT_EQ(plan("[shard_grad_op, offload]").distributed.offload_param, Offload::cpu);
  EXPECT_EQ(plan("true").distributed.strategy, Strategy::full_shard);
  EXPECT_EQ(plan("auto_wrap").distributed.strategy, Strategy::full_shard);
  EXPECT_EQ(plan("false").distributed.strategy, Strategy::ddp);
  EXPECT_EQ(plan("\"\"").distributed.strategy, Strategy::ddp);
  EXPECT_EQ(plan_of(kSmall + "fsdp: full_shard\n").distributed.strategy, Strategy::full_shard);
  for (const char* wrong : {"offload", "full_shard shard_grad_op"}) {
    EXPECT_EQ(error_of(kSmall + "  fsdp: " + wrong + "\n")->code(), 2104) << wrong;
  }
  EXPECT_EQ(error_of(kSmall + "  fsdp: full_shart\n")->code(), 2102);
}

TEST(FsdpKeys, AConfigMayBeAFileOrABlock) {
  const ToolFolder folder;
  folder.write("sub/fsdp.json", R"({"fsdp_sharding_strategy": "SHARD_GRAD_OP"})");
  const auto plan = [&](const std::string& line) { return parse_plan(kSmall + line, folder.place(), {}); };
  EXPECT_EQ(plan("distributed: {use_fsdp: true, fsdp_config: sub/fsdp.json}\n").distributed.strategy,
            Strategy::shard_grad_op)
      << "relative to the file that names it";
  EXPECT_EQ(plan("  fsdp_config: {version: 2, reshard_after_forward: false}\n").distributed.strategy,
            Strategy::shard_grad_op);
  EXPECT_EQ(plan("distributed: {use_fsdp: false, fsdp_config: sub/nothing.json}\n").distributed.strategy,
            Strategy::ddp);
  EXPECT_THROW(plan("distributed: {fsdp_config: sub/nothing.json}\n"), Error);
  EXPECT_THROW(plan("distributed: {fsdp_config: [sub/fsdp.json]}\n"), Error);
}

TEST(Switches, OfTwoToolsOneMayBeOn) {
  const ToolFolder folder;
  folder.write("ds.json", R"({"zero_optimization": {"stage": 2}})");
  const auto code = [&](const std::string& block, const ToolFiles& files = {}) {
    try {
      parse_plan(kSmall + "distributed: {" + block + "}\n", folder.place(), {}, files);
    } catch (const Error& error) {
      return error.code();
    }
    return 0;
  };
  EXPECT_EQ(code("use_deepspeed: true"), 2104);
  EXPECT_EQ(code("use_deepspeed: true, deepspeed_config: ds.json"), 0);
  EXPECT_EQ(code("use_deepspeed: true, deepspeed_config: ds.json, use_fsdp: true"), 2111);
  EXPECT_EQ(code("use_deepspeed: false, deepspeed_config: ds.json, use_fsdp: true"), 0);
  EXPECT_EQ(code("use_fsdp: true", {.deepspeed = folder.write("other.json", "{\"gradient_clipping\": 1}")}), 2111);
  EXPECT_EQ(code("use_deepspeed: 7, deepspeed_config: ds.json"), 2102);
}

}  // namespace
}  // namespace trireme::config
