#include "config/diff.h"

#include "helpers.h"

namespace trireme::config {
namespace {

std::vector<std::string> changed(const Plan& a, const Plan& b) {
  std::vector<std::string> keys;
  for (const Difference& each : differences(a, b)) keys.push_back(each.key);
  return keys;
}

TEST(Diff, OfTwoSpellingsOfOneConfigurationIsEmpty) {
  const Plan a =
      plan_of(kSmall, {"training.learning_rate=1e-4", "training.batch_size=1", "distributed.strategy=zero3"});
  const Plan b = parse_plan(kSmall + "  lr: 0.0001\n  train_micro_batch_size_per_gpu: 1\n", "other.yaml",
                            Overrides{"distributed.strategy=ZeRO3"});
  EXPECT_EQ(changed(a, b), std::vector<std::string>()) << "another name of the file, other names of keys";
  EXPECT_EQ(to_text(differences(a, b), "a", "b"), "");
}

TEST(Diff, NamesEachValueThatDiffersWithBothOrigins) {
  const Plan a = plan_of(kSmall), b = plan_of(kSmall + "  mixed_precision: bf16\n", {"model.num_heads=8"});
  EXPECT_EQ(changed(a, b), (std::vector<std::string>{"model.num_heads", "model.num_key_value_heads", "model.head_dim",
                                                     "training.mixed_precision"}))
      << "with what follows from a value";
  const std::string text = to_text(differences(a, b), "old", "new");
  EXPECT_TRUE(
      text.starts_with("--- old\n+++ new\nmodel.num_heads\n- 4  (run.yaml:4:3)\n"
                       "+ 8  (command line: model.num_heads=8)\n"))
      << text;
  EXPECT_NE(text.find("training.mixed_precision\n- \"no\"  (default)\n+ \"bf16\"  (run.yaml:9:3)\n"), std::string::npos)
      << text;
}

TEST(Diff, TellsANameThatIsGivenFromOneOfTheFile) {
  const Plan a = parse_plan(kSmall, "a.yaml", {}), b = parse_plan(kSmall, "b.yaml", {});
  EXPECT_EQ(changed(a, b), std::vector<std::string>());
  EXPECT_EQ(changed(a, parse_plan("name: c\n" + kSmall, "b.yaml", {})), (std::vector<std::string>{"name"}));
}

TEST(Diff, LeavesWhatTheModelsFolderDecidesToIt) {
  const std::string rest = "data:\n  path: tokens\ntraining:\n  max_steps: 10\n";
  const Plan a = parse_plan("model:\n  path: folder\n" + rest, "a.yaml", {});
  const Plan b = parse_plan("model:\n  path: folder\n  num_heads: 4\n" + rest, "a.yaml", {});
  const std::vector<Difference> found = differences(a, b);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].key, "model.num_heads");
  EXPECT_EQ(found[0].a, "as folder has it");
  EXPECT_EQ(found[0].b, "4");
}

}  // namespace
}  // namespace trireme::config
