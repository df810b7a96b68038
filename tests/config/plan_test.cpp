// What a configuration becomes: defaults, overrides, names from other tools, origins, notices.
#include "config/plan.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "config/schema.h"
#include "helpers.h"

namespace trireme::config {
namespace {

TEST(Plans, DefaultsFollowFromWhatIsGiven) {
  const Plan plan = plan_of(kSmall);
  EXPECT_EQ(plan.name, "run");
  EXPECT_EQ(plan.output_dir, "runs/run");
  EXPECT_EQ(plan.model.num_key_value_heads, 4);
  EXPECT_EQ(plan.model.head_dim, 16);
  EXPECT_EQ(plan.model.intermediate_size, 192);
  EXPECT_EQ(plan.model.max_position_embeddings, plan.data.sequence_length);
  EXPECT_FALSE(plan.model.vocab_size);
  EXPECT_TRUE(plan.data.tokenizer.empty());
  EXPECT_EQ(plan.training.max_steps, 10);
  EXPECT_FALSE(plan.training.global_batch_size);
  EXPECT_EQ(plan.training.mixed_precision, MixedPrecision::no);
  EXPECT_EQ(plan.checkpoint.resume, Resume::automatic);
  EXPECT_TRUE(plan.notices.empty());
}

TEST(Plans, NameIsTheFilesUnlessGiven) {
  EXPECT_EQ(parse_plan(kSmall, "configs/my run.v2.yaml", {}).name, "my-run.v2");
  EXPECT_EQ(parse_plan(kSmall, "", {}).name, "run");
  EXPECT_EQ(parse_plan(kSmall, "..", {}).output_dir, "runs/run");
  EXPECT_EQ(plan_of("name: no\n" + kSmall).output_dir, "runs/no");
}

TEST(Plans, EveryValueHasItsOrigin) {
  const Overrides overrides = {"training.seed=7"};
  const Plan plan = plan_of(kSmall, overrides);
  EXPECT_EQ(plan.origins.at("training.max_steps").place, "run.yaml:8:3");
  EXPECT_FALSE(plan.origins.at("training.max_steps").is_default);
  EXPECT_EQ(plan.origins.at("training.seed").place, "command line: training.seed=7");
  EXPECT_EQ(plan.origins.at("training.learning_rate").place, "default");
  EXPECT_TRUE(plan.origins.at("model.head_dim").is_default);
  for (const Key& key : keys()) {
    EXPECT_EQ(plan.origins.contains(std::string(key.name)), key.tier == Tier::supported) << key.name;
  }
}

TEST(Plans, TheCommandLineWinsOverTheFile) {
  const Plan plan = plan_of(kSmall, {"training.max_steps=20", "model={num_heads: 2, head_dim: 32}"});
  EXPECT_EQ(plan.training.max_steps, 20);
  EXPECT_EQ(plan.model.num_heads, 2);
  EXPECT_EQ(plan.model.head_dim, 32);
  EXPECT_EQ(plan_of(kSmall + "  lr: 1\n", {"training.learning_rate=2"}).training.learning_rate, 2);
  const Plan unset = plan_of(kSmall, {"training.max_steps=null", "training.num_epochs=3.0"});
  EXPECT_FALSE(unset.training.max_steps);
  EXPECT_EQ(unset.training.num_epochs, 3);
}

TEST(Plans, CommandLineValuesAreTakenToTheirLastCharacter) {
  EXPECT_EQ(plan_of(kSmall, {"data.path=a b: c #d=e"}).data.path, "a b: c #d=e");
  EXPECT_EQ(plan_of(kSmall, {"data.path='[a'"}).data.path, "[a");
  EXPECT_EQ(plan_of(kSmall, {"data.path=*x"}).data.path, "*x");
}

TEST(Plans, KeysMayBeWrittenWithDotsOrInFlowStyle) {
  EXPECT_EQ(plan_of("{model: {hidden_size: 64, num_layers: 1, num_heads: 4}, data.path: x, training.max_steps: 5e2}")
                .training.max_steps,
            500);
  EXPECT_EQ(plan_of("\xEF\xBB\xBF" + kSmall + "monitor:\n").monitor.log_interval, 1);
}

TEST(Plans, WindowsLineEndsChangeNothing) {
  std::string text = kSmall;
  for (std::size_t i = 0; (i = text.find('\n', i)) != std::string::npos; i += 2) text.insert(i, "\r");
  EXPECT_EQ(to_yaml(plan_of(text)), to_yaml(plan_of(kSmall)));
  EXPECT_EQ(plan_of(text).origins.at("training.max_steps").place, "run.yaml:8:3");
}

TEST(Plans, NoOfMixedPrecisionSurvivesYaml) {
  for (const char* word : {"no", "No", "'no'", "\"no\"", "off", "false", "none", "fp32"}) {
    EXPECT_EQ(plan_of(kSmall + "  mixed_precision: " + word + "\n").training.mixed_precision, MixedPrecision::no)
        << word;
  }
  for (const char* word : {"bf16", "BF16", "bfloat16", "bf16-mixed"}) {
    EXPECT_EQ(plan_of(kSmall + "  mixed_precision: " + word + "\n").training.mixed_precision, MixedPrecision::bf16);
  }
  for (const char* words :
       {"mixed_precision: fp16", "mixed_precision: Half", "precision: 16-mixed", "dtype: float16", "fp16: true"}) {
    EXPECT_EQ(plan_of(kSmall + "  " + words + "\n").training.mixed_precision, MixedPrecision::fp16) << words;
  }
}

TEST(Plans, AShortTrialOfALongPlanIsANotice) {
  const Plan plan = plan_of(kSmall + "  warmup_steps: 1000000\n");
  ASSERT_EQ(plan.notices.size(), 1u);
  EXPECT_NE(plan.notices[0].find("below warmup_steps 1000000"), std::string::npos) << plan.notices[0];
}

TEST(Plans, NamesFromOtherToolsAreReadWithANotice) {
  const Plan plan =
      plan_of("save_dir: out\n" + kSmall +
              "  per_device_train_batch_size: 2\n  max_grad_norm: 0.5\n  bf16: true\n  num_warmup_steps: 3\n"
              "  lr_scheduler_type: constant_with_warmup\n  save_steps: 50\n  logging_steps: 5\n"
              "  adam_epsilon: 1e-6\ndistributed:\n  gradient_accumulation_steps: 16\n"
              "checkpoint:\n  save_total_limit: 2\n  resume_from_checkpoint: true\n");
  EXPECT_EQ(plan.output_dir, "out");
  EXPECT_EQ(plan.training.micro_batch_size, 2);
  EXPECT_EQ(plan.training.gradient_clipping, 0.5);
  EXPECT_EQ(plan.training.mixed_precision, MixedPrecision::bf16);
  EXPECT_EQ(plan.training.warmup_steps, 3);
  EXPECT_EQ(plan.training.lr_scheduler, LearningRateLaw::constant);
  EXPECT_EQ(plan.checkpoint.save_interval, 50);
  EXPECT_EQ(plan.monitor.log_interval, 5);
  EXPECT_EQ(plan.training.adam_eps, 1e-6);
  EXPECT_EQ(plan.training.gradient_accumulation_steps, 16);
  EXPECT_EQ(plan.checkpoint.keep, 2);
  EXPECT_EQ(plan.checkpoint.resume, Resume::must);
  EXPECT_TRUE(has_notice(plan, "run.yaml:1:1: save_dir (training guides) is read as output_dir"));
  EXPECT_EQ(plan.notices.size(), 12u);
}

TEST(Plans, FlagsThatAreOffSetNothing) {
  const Plan plan = plan_of(kSmall + "  fp16: false\n  mixed_precision: bf16\n");
  EXPECT_EQ(plan.training.mixed_precision, MixedPrecision::bf16);
}

TEST(Plans, KeysOfLaterWorkMaySayOff) {
  const Plan plan = plan_of(kSmall +
                            "  gradient_checkpointing: false\n  optimizer: AdamW\n  device: auto\n"
                            "distributed: {tp: 1, pp: 1.0, cp: 0x1, use_fsdp: off, offload_optimizer: none, backend: "
                            "gloo, deepspeed_config: }\n"
                            "checkpoint: {async: no}\nmonitor: {report_to: [], profile: no}\n");
  EXPECT_TRUE(plan.notices.empty());
  EXPECT_EQ(to_yaml(plan), to_yaml(plan_of(kSmall)));
}

TEST(Plans, ListsOfWordsAreWrittenInManyWays) {
  const std::vector<Receiver> tensorboard = {Receiver::tensorboard};
  for (const char* text : {"tensorboard", "[tensorboard]", "\"TensorBoard\"", "[none, 'tensorboard', jsonl]", "all",
                           "[tensorboard, tensorboard]"}) {
    EXPECT_EQ(plan_of(kSmall, {std::string("monitor.report_to=") + text}).monitor.report_to, tensorboard) << text;
  }
  EXPECT_EQ(plan_of(kSmall + "monitor:\n  report_to:\n  - tensorboard\n").monitor.report_to, tensorboard);
  for (const char* text : {"none", "[]", "", "null", "[none, console]"}) {
    EXPECT_TRUE(plan_of(kSmall, {std::string("training.report_to=") + text}).monitor.report_to.empty()) << text;
  }
}

// A data loader of PyTorch and a tokenizer of Hugging Face, as their users write them.
TEST(Plans, SamplesAreDescribedInTheWordsOfOtherTools) {
  const Plan plan = plan_of(
      "data: {path: tokens, padding: max_length, truncation: true, max_length: 512, text_column: body, num_workers: "
      "0,\n"
      "       pin_memory: true, persistent_workers: true, drop_last: true, max_train_samples: 100}\n" +
      kSmall.substr(0, kSmall.find("data:")) + kSmall.substr(kSmall.find("training:")));
  EXPECT_EQ(plan.data.packing, Packing::padded);
  EXPECT_EQ(plan.data.sequence_length, 512);
  EXPECT_EQ(plan.data.text_field, "body");
  EXPECT_EQ(plan.data.num_workers, 0);
  EXPECT_EQ(plan.data.max_samples, 100);
  for (const char* key : {"pin_memory", "persistent_workers", "drop_last"}) {
    EXPECT_TRUE(has_notice(plan, std::string("data.") + key + " has no effect")) << key;
  }
  EXPECT_EQ(plan_of(kSmall, {"data.packing=false"}).data.packing, Packing::padded);
  EXPECT_EQ(plan_of(kSmall, {"training.packing=true"}).data.packing, Packing::packed);
  EXPECT_EQ(plan_of(kSmall, {"data.padding=false"}).data.packing, Packing::packed);
}

TEST(Plans, KeysOfTheOtherPackingAreNamed) {
  EXPECT_TRUE(has_notice(plan_of(kSmall, {"data.pad_token=x"}), "data.pad_token has no effect"));
  EXPECT_TRUE(has_notice(plan_of(kSmall, {"data.add_eos_token=yes"}), "data.add_eos_token has no effect"));
  EXPECT_TRUE(has_notice(plan_of(kSmall, {"data.packing=padded", "data.document_borders=true"}),
                         "data.document_borders has no effect"));
  EXPECT_TRUE(has_notice(plan_of(kSmall, {"data.num_workers=0", "data.prefetch_factor=4"}),
                         "data.prefetch_factor has no effect"));
  EXPECT_TRUE(plan_of(kSmall, {"data.packing=padded", "data.pad_token=x", "data.add_eos_token=no"}).notices.empty());
}

TEST(Plans, KeysWithoutEffectAreNamed) {
  EXPECT_TRUE(has_notice(plan_of(kSmall + "distributed:\n  find_unused_parameters: true\n"), "has no effect"));
}

TEST(Plans, IdleKeysAreNamed) {
  EXPECT_TRUE(has_notice(plan_of(kSmall + "  num_epochs: 3\n"), "max_steps 10 wins over num_epochs 3"));
}

TEST(Plans, ExplainShowsEveryValueAndItsOrigin) {
  const std::string table = explain(plan_of(kSmall, {"data.path=a b"}));
  const std::size_t steps = table.find("training.max_steps");
  ASSERT_NE(steps, std::string::npos);
  const std::string line = table.substr(steps, table.find('\n', steps) - steps);
  EXPECT_NE(line.find(" 10 "), std::string::npos) << line;
  EXPECT_TRUE(line.ends_with("  run.yaml:8:3")) << line;
  EXPECT_NE(table.find("  command line: data.path=a b\n"), std::string::npos);
  EXPECT_NE(table.find("model.vocab_size"), std::string::npos);
  std::size_t lines = 0, column = 0;
  for (std::size_t begin = 0; begin < table.size(); begin = table.find('\n', begin) + 1, ++lines) {
    const std::size_t origin = std::min(
        {table.find("  default\n", begin), table.find("  run.yaml", begin), table.find("  command line", begin)});
    if (lines == 0) column = origin - begin;
    EXPECT_EQ(origin - begin, column) << "line " << lines;
  }
  EXPECT_EQ(static_cast<std::ptrdiff_t>(lines),
            std::count_if(keys().begin(), keys().end(), [](const Key& key) { return key.tier == Tier::supported; }));
}

class Files : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "trireme-config-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  int code_of(const std::filesystem::path& file) {
    try {
      load_plan(file, {});
    } catch (const Error& error) {
      EXPECT_NE(error.place().find(file.string()), std::string::npos) << error.what();
      return error.code();
    }
    return 0;
  }

  std::filesystem::path folder_;
};

TEST_F(Files, AreReadWithTheirNameAsPlace) {
  const auto file = folder_ / "small run.yaml";
  std::ofstream(file) << kSmall;
  const Plan plan = load_plan(file, {});
  EXPECT_EQ(plan.origins.at("data.path").place, file.string() + ":6:3");
  EXPECT_EQ(plan.data.path, "tokens");  // means the working directory, not the file's
  EXPECT_EQ(plan.name, "small-run");
}

TEST_F(Files, ThatCannotBeReadAreErrors) {
  EXPECT_EQ(code_of(folder_ / "absent.yaml"), 2100);
  EXPECT_EQ(code_of(folder_), 2100);
  EXPECT_EQ(code_of(folder_ / "a" / std::string(5000, 'x')), 2100);
}

// A hundred megabytes, and a device without end, are refused after the first one.
TEST_F(Files, ThatAreHugeAreRefusedUnread) {
  const auto file = folder_ / "huge.yaml";
  std::ofstream(file) << "name: x\n";
  std::filesystem::resize_file(file, 100 << 20);
  EXPECT_EQ(code_of(file), 2108);
  EXPECT_EQ(code_of("/dev/zero"), 2108);
}

}  // namespace
}  // namespace trireme::config
