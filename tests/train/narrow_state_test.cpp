// Masters and moments in bf16: the bits of the serial run under every layout, the curve of fp32, half the memory, and
// checkpoints that keep their type.
#include <gtest/gtest.h>

#include <cmath>

#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "support/temporary_folder.h"
#include "train/engine_run.h"
#include "train/same_bits.h"

namespace trireme::testing {
namespace {

const std::vector<std::string> kBoth = {"training.master_dtype=bf16", "training.moment_dtype=bf16"};

TinyRun narrow(TinyRun run) {
  run.bf16 = true;
  return with(std::move(run), kBoth);
}

TEST(NarrowState, HasTheBitsOfTheSerialRunUnderEveryStrategyOnAnyNumberOfRanks) {
  for (const bool gpt2 : {false, true}) {
    const TinyRun base = narrow({.micro_batches = 5, .steps = 5, .tied = !gpt2, .gpt2 = gpt2});
    const TinyResult serial = train_tiny(base);
    EXPECT_LT(serial.losses.back(), serial.losses.front());
    for (const char* strategy : {"ddp", "zero1", "zero2", "zero3", "shard_grad_op"}) {
      for (const int ranks : {1, 2, 4}) {
        SCOPED_TRACE(std::string(strategy) + " on " + std::to_string(ranks) + (gpt2 ? ", gpt2" : ""));
        TinyRun run = with(base, {std::string("distributed.strategy=") + strategy});
        run.ranks = ranks;
        expect_same_bits(train_tiny(run), serial);
      }
    }
  }
}

TEST(NarrowState, HasThemWhereTheOptimizerIsOffloaded) {
  const TinyRun base = narrow({.micro_batches = 4, .steps = 5});
  const TinyResult serial = train_tiny(base);
  for (const char* parameters : {"none", "cpu"}) {
    TinyRun run = with(base, {"distributed.strategy=zero3", "distributed.offload_optimizer=cpu",
                              std::string("distributed.offload_param=") + parameters});
    run.ranks = 2;
    expect_same_bits(train_tiny(run), serial);
  }
}

TEST(NarrowState, MomentsAloneOrMastersAloneAreNarrowToo) {
  const TinyRun wide{.micro_batches = 4, .steps = 5, .bf16 = true};
  const TinyResult in_fp32 = train_tiny(wide);
  for (const std::string& type : kBoth) {
    const TinyRun base = with(wide, {type});
    const TinyResult serial = train_tiny(base);
    EXPECT_NE(serial.weights_digest, in_fp32.weights_digest);
    TinyRun run = with(base, {"distributed.strategy=zero3"});
    run.ranks = 3;
    expect_same_bits(train_tiny(run), serial);
  }
  // Masters in bf16 on the host, apart from the weights, beside moments in fp32.
  const TinyRun masters = with(wide, {"training.master_dtype=bf16"});
  expect_same_bits(train_tiny(with(masters, {"distributed.offload_optimizer=cpu"})), train_tiny(masters));
  const TinyRun fp32{.micro_batches = 4, .steps = 5, .overrides = {"training.moment_dtype=bf16"}};
  TinyRun run = with(fp32, {"distributed.strategy=zero1"});
  run.ranks = 2;
  expect_same_bits(train_tiny(run), train_tiny(fp32));
}

// Replicas of slices are another order of the same sums: equal to themselves, and to each other.
TEST(NarrowState, RepeatsItsBitsInReplicasOfSlices) {
  TinyRun run = with(narrow({.ranks = 4, .micro_batches = 4, .steps = 5}),
                     {"distributed.strategy=hybrid_shard", "distributed.dp_shard=2"});
  const TinyResult once = train_tiny(run);
  EXPECT_TRUE(once.all_ranks_equal);
  EXPECT_EQ(train_tiny(run).weights_digest, once.weights_digest);
}

TEST(NarrowState, OtherSeedsRoundOtherwise) {
  const TinyRun base = narrow({.micro_batches = 2, .steps = 2});
  const auto digest_of = [&](std::uint64_t seed) {
    EngineRun run{.run = base, .change = [seed](engine::EngineOptions& options) { options.rounding_seed = seed; }};
    return run_engines(run).weights_digest;
  };
  EXPECT_EQ(digest_of(1), digest_of(1));
  EXPECT_NE(digest_of(1), digest_of(2));
}

TEST(NarrowState, ResumesBitEqualOnAnotherNumberOfRanks) {
  const TemporaryFolder folder;
  TinyRun run = with(narrow({.ranks = 2, .micro_batches = 4, .steps = 8}), {"distributed.strategy=zero3"});
  const TinyResult whole = train_tiny(run);
  run.output_dir = folder.path() / "run";
  run.stop_at = [](int, std::int64_t step) { return step == 3; };
  EXPECT_TRUE(train_tiny(run).stopped);
  for (const auto& candidate : checkpoint::list(run.output_dir / "checkpoints")) {
    const checkpoint::Reader reader(candidate.folder);
    for (const checkpoint::LogicalState& tensor : reader.manifest().tensors) {
      EXPECT_EQ(tensor.dtype, DType::bf16) << tensor.name;
    }
  }
  run.stop_at = {};
  run.ranks = 3;
  const TinyResult rest = train_tiny(run);
  EXPECT_EQ(rest.weights_digest, whole.weights_digest);
  EXPECT_EQ(rest.losses, std::vector<double>(whole.losses.begin() + 3, whole.losses.end()));
}

// A run in fp32 that goes on in bf16 begins with its masters, rounded to nearest, and the other way round with all of
// them.
TEST(NarrowState, GoesOnFromStateOfTheOtherType) {
  for (const bool to_narrow : {true, false}) {
    const TemporaryFolder folder;
    const TinyRun wide{.micro_batches = 4, .steps = 8, .bf16 = true, .output_dir = folder.path() / "run"};
    TinyRun first = to_narrow ? wide : narrow(wide), second = to_narrow ? narrow(wide) : wide;
    first.stop_at = [](int, std::int64_t step) { return step == 5; };
    EXPECT_TRUE(train_tiny(first).stopped);
    const TinyResult rest = train_tiny(second);
    ASSERT_EQ(rest.losses.size(), 3u);
    const TinyResult same = train_tiny(with(wide, {"output_dir=" + (folder.path() / "other").string()}));
    for (int i = 0; i < 3; ++i) EXPECT_NEAR(rest.losses[i], same.losses[5 + i], 0.01);
  }
}

TEST(NarrowState, StaysCloseToTheRunWithMastersInFp32) {
  for (const bool gpt2 : {false, true}) {
    const TinyRun wide{.micro_batches = 4, .bf16 = true, .gpt2 = gpt2};
    const TinyResult fp32 = train_tiny(wide), bf16 = train_tiny(narrow(wide));
    EXPECT_LT(bf16.losses.back(), 0.8 * bf16.losses.front());
    double square = 0, norm = 0;
    for (std::size_t i = 0; i < fp32.losses.size(); ++i) {
      square += std::pow(bf16.losses[i] - fp32.losses[i], 2);
      norm += std::pow(fp32.losses[i], 2);
    }
    EXPECT_NE(bf16.losses, fp32.losses);
    EXPECT_LT(std::sqrt(square / norm), 5e-3);
  }
}

// Bytes a parameter beside those of what units read: fp32 12; moments in bf16 8; all in bf16 4, of AdamW.
TEST(NarrowState, TakesTheMemoryThatItsTypesSay) {
  std::int64_t bytes[3];
  const std::vector<std::string> types[3] = {{}, {kBoth[1]}, kBoth};
  std::int64_t numel = 0;
  for (int i = 0; i < 3; ++i) {
    EngineRun run{.run = with({.micro_batches = 1, .steps = 1, .bf16 = true}, types[i])};
    run.begin = [&](engine::Engine& engine, const Chain&) {
      const auto& owners = engine.plan().memory_by_owner;
      bytes[i] = owners.contains("optimizer state") ? owners.at("optimizer state") : 0;
      numel = 0;
      for (const StorageGroup& group : engine.plan().groups) numel += group.numel;
    };
    run_engines(run);
  }
  EXPECT_EQ(bytes[0], 12 * numel);
  EXPECT_EQ(bytes[1], 8 * numel);
  EXPECT_EQ(bytes[2], 4 * numel);
}

}  // namespace
}  // namespace trireme::testing
