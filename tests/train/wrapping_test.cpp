// What a storage group is: which units share one, how large it gets, and that no number depends on it.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "support/expect_error.h"
#include "support/seed.h"
#include "support/temporary_folder.h"
#include "train/dry_run.h"
#include "train/run_output.h"
#include "train/tiny_run.h"

namespace trireme::testing {
namespace {

using Groups = std::vector<std::pair<std::string, std::int64_t>>;

std::string resolved(const TinyRun& run, Groups& groups) {
  const TemporaryFolder folder;
  TinyRun at = run;
  at.output_dir = folder.path() / "run";
  const train::RunDescription description = train::describe_run(tiny_plan(at), run.ranks, 0);
  for (const StorageGroup& group : description.step.groups) groups.emplace_back(group.name, group.numel);
  return description.text;
}

void expect_groups(const TinyRun& run, const Groups& expected, const std::string& line) {
  Groups groups;
  const std::string text = resolved(run, groups);
  EXPECT_EQ(groups, expected);
  EXPECT_NE(text.find("storage groups     " + line + "\n"), std::string::npos) << text;
}

// Counted by hand: the tiny Llama's vocabulary of 257 is stored as 384 rows of 32; a block has qkv 64 x 32, output
// 32 x 32, gate and up 96 x 32 and down 32 x 48, together 7,680, and two norms of 32, each stored in 256.
TEST(Wrapping, GroupsOfTheLlamaAreThoseCountedByHand) {
  const TinyRun untied{.tied = false}, tied{.tied = true};
  expect_groups(untied,
                {{"embed.decay", 12288},
                 {"layers.0.no_decay", 512},
                 {"layers.0.decay", 7680},
                 {"layers.1.no_decay", 512},
                 {"layers.1.decay", 7680},
                 {"head.no_decay", 256},
                 {"head.decay", 12288}},
                "7 (elements: 2 x 12288, 2 x 7680, 2 x 512, 1 x 256)");
  // 12,288 elements are enough; two blocks have 2 x 7,744; the head has 12,320.
  const std::vector<std::string> size{"distributed.auto_wrap=size", "distributed.min_num_params=10000"};
  expect_groups(with(untied, size),
                {{"embed.decay", 12288},
                 {"layers.0.no_decay", 1024},
                 {"layers.0.decay", 15360},
                 {"head.no_decay", 256},
                 {"head.decay", 12288}},
                "5 (elements: 1 x 15360, 2 x 12288, 1 x 1024, 1 x 256)");
  // A tied head has 32 of its own, which cannot make a set: it joins the blocks'. The matrix is read by two sets.
  expect_groups(with(tied, size), {{"embed.tied", 12288}, {"layers.0.no_decay", 1280}, {"layers.0.decay", 15360}},
                "3 (elements: 1 x 15360, 1 x 12288, 1 x 1280)");
  const std::vector<std::string> name{"distributed.auto_wrap=by_name", "distributed.wrap_names=layers.1"};
  expect_groups(
      with(untied, name),
      {{"embed.decay", 19968}, {"embed.no_decay", 512}, {"layers.1.no_decay", 768}, {"layers.1.decay", 19968}},
      "4 (elements: 2 x 19968, 1 x 768, 1 x 512)");
  expect_groups(with(tied, name),
                {{"embed.tied", 12288},
                 {"embed.no_decay", 512},
                 {"embed.decay", 7680},
                 {"layers.1.no_decay", 768},
                 {"layers.1.decay", 7680}},
                "5 (elements: 1 x 12288, 2 x 7680, 1 x 768, 1 x 512)");
  const std::vector<std::string> none{"distributed.auto_wrap=none"};
  expect_groups(with(untied, none), {{"embed.decay", 39936}, {"embed.no_decay", 1280}},
                "2 (elements: 1 x 39936, 1 x 1280)");
  expect_groups(with(tied, none), {{"embed.decay", 27648}, {"embed.no_decay", 1280}},
                "2 (elements: 1 x 27648, 1 x 1280)");
}

// GPT-2's blocks have 12,288 elements in matrices of 32 columns, and ten vectors of at most 256; positions are 16 x 32.
TEST(Wrapping, GroupsOfGpt2AreThoseCountedByHand) {
  const TinyRun gpt2{.tied = true, .gpt2 = true};
  expect_groups(gpt2,
                {{"embed.tied", 12288},
                 {"embed.decay", 512},
                 {"layers.0.no_decay", 2048},
                 {"layers.0.decay", 12288},
                 {"layers.1.no_decay", 2048},
                 {"layers.1.decay", 12288},
                 {"head.no_decay", 512}},
                "7 (elements: 3 x 12288, 2 x 2048, 2 x 512)");
  const Groups last_two{{"embed.tied", 12288},     {"embed.decay", 512},        {"layers.0.no_decay", 2048},
                        {"layers.0.decay", 12288}, {"layers.1.no_decay", 2560}, {"layers.1.decay", 12288}};
  const std::string line = "6 (elements: 3 x 12288, 1 x 2560, 1 x 2048, 1 x 512)";
  expect_groups(with(gpt2, {"distributed.auto_wrap=size", "distributed.min_num_params=12500"}), last_two, line);
  expect_groups(with(gpt2, {"distributed.auto_wrap=by_name", "distributed.wrap_names=[layers.*]"}), last_two, line);
  expect_groups(with(gpt2, {"distributed.auto_wrap=none"}), {{"embed.decay", 37376}, {"embed.no_decay", 4608}},
                "2 (elements: 1 x 37376, 1 x 4608)");
}

// A bucket is never exceeded but by a parameter alone, none is cut, and a block that fits into one is not cut either.
TEST(Wrapping, BucketsBoundGroups) {
  const TinyRun untied{.tied = false};
  const Groups blocks_apart{{"embed.decay", 12288},
                            {"embed.no_decay", 1280},
                            {"embed.decay.2", 7680},
                            {"embed.decay.3", 7680},
                            {"embed.decay.4", 12288}};
  const std::string line = "5 (elements: 2 x 12288, 2 x 7680, 1 x 1280)";
  const std::vector<std::string> none{"distributed.auto_wrap=none", "distributed.bucket_size=8000"};
  expect_groups(with(untied, none), blocks_apart, line);
  // The next block's first matrix would still fit beside the block before it, but not the block.
  expect_groups(with(untied, {"distributed.auto_wrap=none", "distributed.bucket_size=10000"}), blocks_apart, line);
  // Of DeepSpeed's two sizes the smaller governs, and so does a bucket that is smaller than what size asks for.
  expect_groups(with(untied, {"distributed.auto_wrap=none", "distributed.reduce_bucket_size=1000000",
                              "distributed.allgather_bucket_size=8000"}),
                blocks_apart, line);
  expect_groups(with(untied, {"distributed.auto_wrap=size", "distributed.bucket_size=8000"}), blocks_apart, line);
  // Parts of a block: qkv and output 3,072; gate, up and down 4,608.
  expect_groups(with(untied, {"distributed.bucket_size=5000"}),
                {{"embed.decay", 12288},
                 {"layers.0.no_decay", 512},
                 {"layers.0.decay", 3072},
                 {"layers.0.decay.2", 4608},
                 {"layers.1.no_decay", 512},
                 {"layers.1.decay", 3072},
                 {"layers.1.decay.2", 4608},
                 {"head.no_decay", 256},
                 {"head.decay", 12288}},
                "9 (elements: 2 x 12288, 2 x 4608, 2 x 3072, 2 x 512, 1 x 256)");
}

// In a round a set of two blocks is gathered for both at once in the forward and in the backward, and reduced after the
// second one's gradients; the head, which turns round, once; all units in one set stay gathered for the step.
TEST(Wrapping, AGroupOfSeveralUnitsIsGatheredForAllOfThemAndReducedOnce) {
  const TemporaryFolder folder;
  const auto counts = [&](const std::vector<std::string>& wrapping) {
    TinyRun run = with({.ranks = 2, .micro_batches = 4, .tied = false, .output_dir = folder.path() / "run"}, wrapping);
    run = with(run, {"distributed.strategy=zero3", "distributed.gather_ahead=0", "model.num_layers=4"});
    const engine::StepPlan step = train::describe_run(tiny_plan(run), 2, 1).step;
    std::map<std::string, std::pair<int, int>> times;  // of a group: gathered, reduced
    for (const schedule::Instruction& instruction : step.program().instructions) {
      if (instruction.op == schedule::Op::gather) ++times[step.groups[instruction.group].name].first;
      if (instruction.op == schedule::Op::reduce) ++times[step.groups[instruction.group].name].second;
    }
    return times;
  };
  const auto pairs = counts({"distributed.auto_wrap=by_name", "distributed.wrap_names=[layers.0, layers.2, head]"});
  const std::pair<int, int> both_ways{4, 2}, turning{2, 2}, all_the_time{1, 2};  // of two rounds
  EXPECT_EQ(pairs.at("layers.0.decay"), both_ways);
  EXPECT_EQ(pairs.at("layers.2.decay"), both_ways);
  EXPECT_EQ(pairs.at("head.decay"), turning);
  EXPECT_EQ(counts({"distributed.auto_wrap=none"}).at("embed.decay"), all_the_time);
}

// Where parameters lie decides memory and time, never a bit: every policy under every strategy.
TEST(Wrapping, ChangesNoBitUnderAnyStrategy) {
  const std::vector<std::vector<std::string>> wrappings{
      {"distributed.auto_wrap=size", "distributed.min_num_params=10000"},
      {"distributed.auto_wrap=by_name", "distributed.wrap_names=[layers.1, head]"},
      {"distributed.auto_wrap=none"},
      {"distributed.auto_wrap=none", "distributed.bucket_size=9000"},
      {"distributed.bucket_size=4000", "distributed.persistence_threshold=1500"}};
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (const bool gpt2 : {false, true}) {
    for (const bool tied : {false, true}) {
      if (gpt2 && !tied) continue;
      const TinyRun base{.micro_batches = 5, .steps = 4, .tied = tied, .bf16 = gpt2, .gpt2 = gpt2};
      std::vector<double> evaluations;  // of the latest run
      const auto train = [&](TinyRun run) {
        const TemporaryFolder folder;
        run.output_dir = folder.path() / "run";
        const TinyResult result = train_tiny(with(run, {"training.eval_interval=2"}));
        evaluations = evaluation_losses(run.output_dir);
        return result;
      };
      const TinyResult serial = train(base);
      const std::vector<double> serial_evaluations = evaluations;
      EXPECT_EQ(serial_evaluations.size(), 2u);
      for (const char* strategy : {"ddp", "zero1", "zero2", "zero3", "shard_grad_op"}) {
        for (const std::vector<std::string>& wrapping : wrappings) {
          TinyRun run = with(base, wrapping);
          run.overrides.push_back(std::string("distributed.strategy=") + strategy);
          run.overrides.push_back("distributed.gather_ahead=" + std::to_string(random() % 3));
          run.ranks = 1 + static_cast<int>(random() % 4);
          SCOPED_TRACE(std::string(gpt2   ? "gpt2, "
                                   : tied ? "tied, "
                                          : "") +
                       strategy + ", " + wrapping[0] + ", " + std::to_string(run.ranks) + " ranks");
          const TinyResult parallel = train(run);
          EXPECT_EQ(parallel.losses, serial.losses);
          EXPECT_EQ(parallel.gradient_norms, serial.gradient_norms);
          EXPECT_EQ(evaluations, serial_evaluations);
          EXPECT_EQ(parallel.weights_digest, serial.weights_digest);
          EXPECT_TRUE(parallel.all_ranks_equal);
        }
      }
    }
  }
}

// A name that no unit has is the user's mistake, and the model's units are told.
TEST(Wrapping, RefusesNamesThatMatchNothing) {
  Groups ignored;
  const TinyRun run{};
  const auto plan = [&](const std::string& names) {
    return with(run, {"distributed.auto_wrap=by_name", "distributed.wrap_names=" + names});
  };
  try {
    resolved(plan("[layers.*, LlamaDecoderLayer]"), ignored);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), 2290);
    EXPECT_NE(error.message().find("LlamaDecoderLayer"), std::string::npos);
    EXPECT_EQ(error.remedy(), "its units are embed, layers.0, layers.1, head");
  }
  expect_error(2290, [&] { resolved(plan("[]"), ignored); });
}

}  // namespace
}  // namespace trireme::testing
