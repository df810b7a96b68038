// What users of other tools ran into with configurations, and the attacks on readers of YAML: each ends as it should.
#include "helpers.h"

namespace trireme::config {
namespace {

// LlamaFactory#4149: 5e-5 reached the optimizer as text.
TEST(ConfigurationComplaints, AnySpellingOfANumberIsTheNumber) {
  for (const char* text : {"5e-5", "5E-5", ".00005", "0.00005", "\"5e-5\"", "'5e-5'"}) {
    EXPECT_EQ(plan_of(kSmall + "  learning_rate: " + text + "\n").training.learning_rate, 5e-5) << text;
  }
  EXPECT_EQ(plan_of(kSmall + "distributed: {bucket_size: 5e8}\n").distributed.bucket_size, 500000000);
  EXPECT_EQ(plan_of(kSmall + "distributed: {bucket_size: \"5e8\"}\n").distributed.bucket_size, 500000000);
  EXPECT_EQ(error_of(kSmall + "distributed: {bucket_size: 5e-1}\n")->code(), 2102);
}

// accelerate PR#1386: "no" became false.
TEST(ConfigurationComplaints, NoIsAWordOfAnEnum) {
  for (const char* text : {"no", "\"no\"", "NO", "off"}) {
    EXPECT_EQ(plan_of(kSmall + "  mixed_precision: " + text + "\n").training.mixed_precision, MixedPrecision::no);
  }
}

// unsloth PR#10452: a misspelt key was passed over.
TEST(ConfigurationComplaints, AMisspeltKeyIsAnErrorWithItsPlace) {
  for (const auto& [line, near] : {std::pair{"  lerning_rate: 1\n", "training.learning_rate"},
                                   std::pair{"  gradient_acumulation_steps: 2\n", "gradient_accumulation_steps"}}) {
    const auto error = error_of(kSmall + line);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->place(), "run.yaml:9:3");
    EXPECT_EQ(error->exit_code(), 2);
    EXPECT_NE(error->remedy().find(near), std::string::npos) << error->what();
  }
}

// xtuner PR#262: does a clipping of 0 clip everything or nothing?
TEST(ConfigurationComplaints, AClippingOfZeroIsOffAndPrinted) {
  const Plan plan = plan_of(kSmall + "  max_grad_norm: 0\n");
  EXPECT_EQ(plan.training.gradient_clipping, 0);
  EXPECT_NE(explain(plan).find("training.gradient_clipping"), std::string::npos);
  EXPECT_NE(schema_as_markdown().find("0: no clipping"), std::string::npos);
  EXPECT_EQ(error_of(kSmall + "  max_grad_norm: null\n")->code(), 2102) << "null is no word for off";
  EXPECT_EQ(error_of(kSmall + "  max_grad_norm: -1\n")->code(), 2105);
}

// transformers#132: a warm-up beyond the end.
TEST(ConfigurationComplaints, AWarmUpBeyondTheEndIsTold) {
  EXPECT_TRUE(has_notice(plan_of(kSmall + "  warmup_steps: 11\n"), "the learning rate does not reach its peak"));
  EXPECT_FALSE(has_notice(plan_of(kSmall + "  warmup_steps: 10\n"), "does not reach its peak"));
}

// js-yaml#742 and #739, rapidyaml#656, pyyaml#235, and a flow of brackets.
TEST(ConfigurationComplaints, BombsAreRefusedWithTheirPlace) {
  std::string doubled = "a0: &a0 [x]\n";
  for (int i = 1; i < 25; ++i) {
    const std::string before = std::to_string(i - 1);
    doubled += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [*a" + before + ", *a" + before + "]\n";
  }
  std::string steps, spaces;
  for (int i = 0; i < 200; ++i, spaces += ' ') steps += spaces + "a:\n";
  const std::string bombs[] = {doubled,       steps,          "a: " + std::string(4000, '['),
                               "&a *a : 1\n", "a: &a [*a]\n", "a: " + std::string(4000, '{')};
  for (const std::string& bomb : bombs) {
    const auto error = error_of(bomb);
    ASSERT_TRUE(error);
    EXPECT_TRUE(error->code() == 2107 || error->code() == 2108) << error->what();
    EXPECT_TRUE(error->place().starts_with("run.yaml:")) << error->place();
  }
}

TEST(ConfigurationComplaints, SizeAndTwiceTheSameKeyAreRefused) {
  EXPECT_EQ(error_of(kSmall + "# " + std::string(1 << 20, 'x') + "\n")->code(), 2108);
  EXPECT_EQ(error_of("fsdp_version: 1\nfsdp_version: 2\n")->code(), 2103);
  EXPECT_EQ(error_of("distributed: {fsdp_version: 1}\nfsdp_version: 1\n" + kSmall)->code(), 2103)
      << "the same place in two spellings";
}

}  // namespace
}  // namespace trireme::config
