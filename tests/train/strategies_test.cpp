// Every strategy is the serial run, bit for bit, and keeps the memory that its row of the table says.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <random>

#include "base/failpoint.h"
#include "engine/engine.h"
#include "models/model.h"
#include "support/seed.h"
#include "support/temporary_folder.h"
#include "train/tiny_run.h"

namespace trireme::testing {
namespace {

std::string words_of(const TinyRun& run) {
  std::string text = std::to_string(run.ranks) + " ranks, " + std::to_string(run.micro_batches) + " micro-batches";
  if (run.tied) text += ", tied";
  if (run.bf16) text += ", bf16";
  if (run.gpt2) text += ", gpt2";
  for (const std::string& override : run.overrides) text += ", " + override;
  return text;
}

void expect_bits_of_serial(const TinyRun& run, const TinyResult& serial) {
  SCOPED_TRACE(words_of(run));
  const TinyResult parallel = train_tiny(run);
  EXPECT_EQ(parallel.losses, serial.losses);
  EXPECT_EQ(parallel.gradient_norms, serial.gradient_norms);
  EXPECT_EQ(parallel.samples, serial.samples);
  EXPECT_EQ(parallel.weights_digest, serial.weights_digest);
  EXPECT_TRUE(parallel.all_ranks_equal);
}

// zero1 where it reduces at each micro-batch, as these runs do.
constexpr std::array kExact = {"zero1", "zero2", "zero3", "shard_grad_op"};

class Strategies : public ::testing::TestWithParam<int> {};

TEST_P(Strategies, HaveTheBitsOfTheSerialRunOnAnyNumberOfRanks) {
  const int micro_batches = GetParam();
  for (const bool tied : {false, true}) {
    const TinyRun base{.micro_batches = micro_batches, .steps = 6, .tied = tied};
    const TinyResult serial = train_tiny(base);
    for (const char* strategy : kExact) {
      for (const int ranks : {1, 2, 3, 4, 5}) {
        if (ranks > micro_batches) continue;
        TinyRun run = with(base, {std::string("distributed.strategy=") + strategy});
        run.ranks = ranks;
        expect_bits_of_serial(run, serial);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(MicroBatches, Strategies, ::testing::Values(4, 5, 6));

// When what is gathered, kept whole or waits for its reduction decides memory and time, never a bit: random settings.
TEST(Strategies, SettingsOfGatheringChangeNoBit) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto pick = [&](const std::vector<std::string>& of) { return of[random() % of.size()]; };
  for (const bool bf16 : {false, true}) {
    for (const bool gpt2 : {false, true}) {
      TinyRun base{.micro_batches = 5, .steps = 4, .bf16 = bf16, .gpt2 = gpt2};
      const TinyResult serial = train_tiny(base);
      for (int i = 0; i < 8; ++i) {
        TinyRun run =
            with(base, {"distributed.strategy=" + pick({"zero1", "zero2", "zero3", "shard_grad_op", "full_shard"}),
                        "distributed.gather_ahead=" + pick({"0", "1", "2", "3", "9"}),
                        "distributed.reuse_distance=" + pick({"0", "3000", "1000000000"}),
                        "distributed.persistence_threshold=" + pick({"0", "2000", "9000"}),
                        "distributed.gradient_slots=" + pick({"1", "2", "4"})});
        run.ranks = 1 + static_cast<int>(random() % 5);
        expect_bits_of_serial(run, serial);
      }
    }
  }
}

// The update runs into the next step's forward or does not, lanes overlap or take turns: the same bits, also where
// evaluations, saves and a stop drain the pending update in between.
TEST(Strategies, OverlapOnAndOffHaveTheSameBits) {
  for (const bool bf16 : {false, true}) {
    const TinyRun base = with({.micro_batches = 5, .steps = 7, .bf16 = bf16},
                              {"training.eval_interval=2", "checkpoint.save_interval=3"});
    const TinyResult serial = train_tiny(base);
    for (const char* strategy : {"ddp", "zero1", "zero2", "zero3", "shard_grad_op"}) {
      for (const char* overlap : {"true", "false"}) {
        TinyRun run = with(base, {std::string("distributed.strategy=") + strategy,
                                  std::string("distributed.overlap_comm=") + overlap});
        run.ranks = 3;
        expect_bits_of_serial(run, serial);
      }
    }
  }
}

// Kernels that sleep and collectives that come late, on any rank and lane, change no bit.
TEST(Strategies, RandomDelaysChangeNoBit) {
  const char* wanted = std::getenv("TRIREME_DELAYED_RUNS");  // for a longer search than the test suite has time for
  const int runs = wanted != nullptr ? std::atoi(wanted) : 80;
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto pick = [&](const std::vector<std::string>& of) { return of[random() % of.size()]; };
  for (int family = 0; family < 4; ++family) {
    const TinyRun base{.micro_batches = 5, .steps = 2, .tied = family % 2 == 0, .gpt2 = family >= 2};
    const TinyResult serial = train_tiny(base);
    set_failpoints("engine.instruction=delay(400)@every");
    for (int i = 0; i < runs / 4; ++i) {
      TinyRun run = with(base, {"distributed.strategy=" + pick({"ddp", "zero1", "zero2", "zero3", "shard_grad_op"}),
                                "distributed.gather_ahead=" + pick({"0", "1", "3"}),
                                "distributed.gradient_slots=" + pick({"1", "2", "4"}),
                                "training.gradient_checkpointing=" + pick({"none", "full"})});
      run.ranks = 2 + static_cast<int>(random() % 4);
      expect_bits_of_serial(run, serial);
    }
    set_failpoints("");
  }
}

// Slices in every replica, summed over the replicas after the last micro-batch: another tree of the same sum.
TEST(Strategies, ReplicasOfSlicesStayWithinTolerance) {
  const TinyRun base{.micro_batches = 6, .steps = 5};
  const TinyResult serial = train_tiny(base);
  for (const char* strategy : {"hybrid_shard", "zero1", "zero2"}) {
    TinyRun run = with(base, {std::string("distributed.strategy=") + strategy, "distributed.dp_replicate=2"});
    run.ranks = 4;
    SCOPED_TRACE(words_of(run));
    const TinyResult hybrid = train_tiny(run);
    EXPECT_TRUE(hybrid.all_ranks_equal);
    EXPECT_EQ(hybrid.weights_digest, train_tiny(run).weights_digest) << "the same run again";
    EXPECT_NEAR(hybrid.losses[0], serial.losses[0], 1e-6 * serial.losses[0]);
    EXPECT_NEAR(hybrid.gradient_norms[0], serial.gradient_norms[0], 2e-6 * serial.gradient_norms[0]);
    EXPECT_NEAR(hybrid.losses[4], serial.losses[4], 1e-4 * serial.losses[4]);
  }
  // One rank a replica: ddp. One replica: full_shard.
  TinyRun run = with(base, {"distributed.strategy=hybrid_shard", "distributed.dp_shard=1"});
  run.ranks = 3;
  expect_bits_of_serial(run, serial);
  run = with(base, {"distributed.strategy=hybrid_shard", "distributed.dp_shard=3"});
  run.ranks = 3;
  expect_bits_of_serial(run, serial);
}

// zero1 and ddp that reduce once a step add up in one and the same order.
TEST(Strategies, Zero1ReducesOnceAStepAsDdpDoes) {
  TinyRun run{.ranks = 3, .micro_batches = 5, .steps = 5, .reduce_each_micro_batch = false};
  const TinyResult ddp = train_tiny(run);
  expect_bits_of_serial(with(run, {"distributed.strategy=zero1"}), ddp);
}

// A checkpoint holds logical tensors: what one strategy saved another goes on with, on other numbers of ranks.
TEST(Strategies, GoOnWithEachOthersCheckpoints) {
  const TinyRun base{.micro_batches = 5, .steps = 12};
  const TinyResult never_stopped = train_tiny(base);
  const TemporaryFolder folder;
  TinyResult last;
  std::vector<double> losses;
  const std::pair<const char*, int> legs[] = {
      {"zero3", 3}, {"ddp", 2}, {"shard_grad_op", 5}, {"zero1", 4}, {"zero2", 2}};
  for (std::int64_t leg = 0; leg < 5; ++leg) {
    TinyRun run = with(base, {std::string("distributed.strategy=") + legs[leg].first});
    run.ranks = legs[leg].second;
    run.output_dir = folder.path() / "run";
    if (leg < 4) run.stop_at = [leg](int, std::int64_t step) { return step == 2 * leg + 2; };
    last = train_tiny(run);
    losses.insert(losses.end(), last.losses.begin(), last.losses.end());
  }
  EXPECT_EQ(losses, never_stopped.losses);
  EXPECT_EQ(last.weights_digest, never_stopped.weights_digest);
}

// What is not kept is computed again to the same bits, and memory falls.
TEST(Recompute, ChangesNoBitAndKeepsLess) {
  for (const bool gpt2 : {false, true}) {
    const TinyRun base{.micro_batches = 4, .steps = 6, .gpt2 = gpt2};
    const TinyResult kept = train_tiny(base);
    for (const char* mode : {"selective", "full"}) {
      expect_bits_of_serial(with(base, {std::string("training.gradient_checkpointing=") + mode}), kept);
    }
    expect_bits_of_serial(with(base, {"training.gradient_checkpointing=full", "training.recompute_every=2"}), kept);
  }
  LlamaConfig config;
  config.vocabulary = 500, config.hidden_size = 64, config.intermediate_size = 192, config.num_layers = 8;
  config.num_heads = 4, config.num_key_value_heads = 2, config.max_positions = 256;
  const auto arena = [&](bool recompute_wide, int every) {
    const Chain chain = make_chain(config, DType::f32, recompute_wide);
    return engine::plan_step(chain, {.micro_batch = {4, 256}, .recompute_every = every}, 0).program().arena_bytes;
  };
  const std::int64_t all = arena(false, 0), selective = arena(true, 0), half = arena(false, 2), full = arena(false, 1);
  EXPECT_LT(full, half);
  EXPECT_LT(half, all);
  EXPECT_LT(selective, all);
  // Eight blocks keep 8 x (width 64 + 3 x 192 ...) rows; with full one block's and eight inputs.
  EXPECT_LT(full, all * 2 / 5);
}

// With one micro-batch a rank, what is sent is the gradient itself: no copy in fp32, and the bits of the serial run
// even where sums of several would be another order.
TEST(Strategies, OneMicroBatchARankIsReducedAsItIs) {
  const auto accumulates = [](int micro_batches) {
    LlamaConfig config;
    config.vocabulary = 64, config.hidden_size = 32, config.intermediate_size = 64, config.num_layers = 2;
    config.num_heads = 2, config.num_key_value_heads = 2, config.max_positions = 16;
    const Chain chain = make_chain(config, DType::bf16);
    const engine::EngineOptions options{.micro_batch = {1, 16}, .split = {micro_batches, 2}};
    const engine::StepPlan plan = engine::plan_step(chain, options, 0);
    const auto& instructions = plan.program().instructions;
    return std::any_of(instructions.begin(), instructions.end(),
                       [](const auto& instruction) { return instruction.op == schedule::Op::accumulate; });
  };
  EXPECT_FALSE(accumulates(2));
  EXPECT_TRUE(accumulates(4));
  for (const bool bf16 : {false, true}) {
    const TinyRun base{.micro_batches = 3, .steps = 6, .reduce_each_micro_batch = true, .bf16 = bf16};
    const TinyResult serial = train_tiny(base);
    TinyRun run = base;
    run.ranks = 3;
    run.reduce_each_micro_batch = false;
    for (const char* strategy : {"ddp", "zero1"}) {
      expect_bits_of_serial(with(run, {std::string("distributed.strategy=") + strategy}), serial);
    }
  }
}

struct StrategyBytes {
  const char* name;
  schedule::Sharding sharding;
  // Bytes per parameter of weights, optimizer state and gradient sums: fixed, and divided by the ranks.
  double fp32_whole, fp32_sliced, narrow_whole, narrow_sliced;
};

// The formulas of the design: fp32 16; 8 + 8/N; 4 + 12/N; 16/N. bf16 and fp16 18; 6 + 12/N; 2 + 16/N; 18/N.
constexpr StrategyBytes kStrategyBytes[] = {
    {"ddp", {}, 16, 0, 18, 0},
    {"zero1", {.optimizer = true}, 8, 8, 6, 12},
    {"zero2", {.gradients = true, .optimizer = true}, 4, 12, 2, 16},
    {"zero3", {.parameters = true, .gradients = true, .optimizer = true}, 0, 16, 0, 18}};

TEST(Strategies, KeepTheBytesOfTheFormulas) {
  LlamaConfig config;
  config.vocabulary = 1000, config.hidden_size = 128, config.intermediate_size = 256, config.num_layers = 3;
  config.num_heads = 4, config.num_key_value_heads = 2, config.max_positions = 64;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Chain chain = make_chain(config, dtype);
    for (const StrategyBytes& row : kStrategyBytes) {
      for (const int ranks : {1, 2, 4, 8}) {
        engine::EngineOptions options{.micro_batch = {1, 64}, .split = {ranks, ranks}, .sharding = row.sharding};
        const engine::StepPlan plan = engine::plan_step(chain, options, ranks - 1);
        std::int64_t numel = 0;
        for (const StorageGroup& group : plan.groups) numel += group.numel;
        const auto& owners = plan.memory_by_owner;
        const std::int64_t bytes =
            owners.at("weights") + owners.at("optimizer state") + owners.at("gradient accumulators");
        const bool f32 = dtype == DType::f32;
        const double whole = f32 ? row.fp32_whole : row.narrow_whole,
                     sliced = f32 ? row.fp32_sliced : row.narrow_sliced;
        EXPECT_EQ(static_cast<double>(bytes), static_cast<double>(numel) * (whole + sliced / ranks))
            << row.name << ", " << ranks << " ranks";
      }
    }
  }
}

}  // namespace
}  // namespace trireme::testing
