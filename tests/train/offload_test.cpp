// What is in host memory changes no bit, and the device keeps what the formulas say.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "base/failpoint.h"
#include "comm/communicator.h"
#include "engine/engine.h"
#include "models/model.h"
#include "schedule/place.h"
#include "support/expect_error.h"
#include "support/seed.h"
#include "support/temporary_folder.h"
#include "train/dry_run.h"
#include "train/tiny_run.h"

namespace trireme::testing {
namespace {

using schedule::Tier;
using Overrides = std::vector<std::string>;

void expect_bits_of_plain(const TinyRun& run, const TinyResult& plain) {
  std::string words = std::to_string(run.ranks) + " ranks";
  for (const std::string& override : run.overrides) words += ", " + override;
  SCOPED_TRACE(words + (run.tied ? ", tied" : "") + (run.bf16 ? ", bf16" : "") + (run.gpt2 ? ", gpt2" : ""));
  const TinyResult offloaded = train_tiny(run);
  EXPECT_EQ(offloaded.losses, plain.losses);
  EXPECT_EQ(offloaded.gradient_norms, plain.gradient_norms);
  EXPECT_EQ(offloaded.weights_digest, plain.weights_digest);
  EXPECT_TRUE(offloaded.all_ranks_equal);
}

const Overrides kOptimizer = {"distributed.offload_optimizer=cpu"};
const Overrides kInputs = {"training.gradient_checkpointing=full", "training.cpu_checkpointing=true"};
const Overrides kParameters = {"distributed.offload_param=cpu"};  // and the optimizer with them
const Overrides kAll = {"distributed.offload_param=cpu", "training.gradient_checkpointing=full",
                        "training.cpu_checkpointing=true"};

struct Offloads {
  const char* strategy;
  std::vector<Overrides> modes;
};
const Offloads kLegal[] = {{"ddp", {kOptimizer, kInputs}},
                           {"zero1", {kOptimizer, kInputs}},
                           {"zero2", {kOptimizer, kInputs}},
                           {"zero3", {kOptimizer, kInputs, kParameters, kAll}},
                           {"shard_grad_op", {kOptimizer, kParameters, kAll}}};

// clips; on fp32 and bf16.
class Offload : public ::testing::TestWithParam<std::tuple<bool, bool>> {};

TEST_P(Offload, ChangesNoBitUnderAnyStrategy) {
  const auto [clips, bf16] = GetParam();
  int turn = 0;
  for (const bool gpt2 : {false, true}) {
    for (const bool tied : {false, true}) {
      TinyRun base{.micro_batches = 5, .steps = 3, .tied = tied, .bf16 = bf16, .gpt2 = gpt2};
      base.overrides = {std::string("training.gradient_clipping=") + (clips ? "1" : "0")};
      const TinyResult plain = train_tiny(base);
      for (const Offloads& row : kLegal) {
        for (const Overrides& mode : row.modes) {
          TinyRun run = with(with(base, {std::string("distributed.strategy=") + row.strategy}), mode);
          run.ranks = 1 + turn++ % 3;
          expect_bits_of_plain(run, plain);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(ClipsAndDtypes, Offload, ::testing::Combine(::testing::Bool(), ::testing::Bool()));

// Groups that stay whole, other depths of gathering, several ranks a replica, every second block recomputed.
TEST(OffloadSettings, ChangeNoBit) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto pick = [&](const Overrides& of) { return of[random() % of.size()]; };
  for (const bool bf16 : {false, true}) {
    TinyRun base{.micro_batches = 5, .steps = 3, .bf16 = bf16};
    base.overrides = {"model.num_layers=4"};
    const TinyResult plain = train_tiny(base);
    for (int i = 0; i < 10; ++i) {
      TinyRun run = with(base, {"distributed.offload_param=cpu",
                                "distributed.strategy=" + pick({"zero3", "shard_grad_op", "full_shard"}),
                                "distributed.gather_ahead=" + pick({"0", "1", "2", "9"}),
                                "distributed.reuse_distance=" + pick({"0", "3000", "1000000000"}),
                                "distributed.persistence_threshold=" + pick({"0", "2000", "9000"}),
                                "distributed.gradient_slots=" + pick({"1", "2", "4"})});
      if (i % 2 == 0) {
        run = with(run, {"training.gradient_checkpointing=full", "training.cpu_checkpointing=true",
                         "training.recompute_every=" + pick({"1", "2", "3"})});
      }
      run.ranks = 1 + static_cast<int>(random() % 5);
      expect_bits_of_plain(run, plain);
    }
  }
  // Replicas add up in another order: the same run without offloading is the measure.
  TinyRun hybrid{.ranks = 4, .micro_batches = 6, .steps = 3};
  hybrid.overrides = {"distributed.strategy=hybrid_shard", "distributed.dp_shard=2"};
  expect_bits_of_plain(with(hybrid, kAll), train_tiny(hybrid));
}

// fp16 with its loss scale, bf16 sums, and a step that is left out because a gradient was not finite: the units'
// weights are fetched all the same and are those before.
TEST(OffloadPrecision, ChangesNoBitWhereStepsAreSkipped) {
  const Overrides settings[] = {
      {"training.mixed_precision=fp16"},
      {"training.mixed_precision=bf16", "training.grad_accum_dtype=bf16", "training.nonfinite_gradients=skip"},
      {"training.nonfinite_gradients=skip", "training.gradient_clipping=0"}};
  for (const Overrides& setting : settings) {
    for (const auto& [strategy, mode] :
         {std::pair("ddp", kOptimizer), std::pair("zero1", kOptimizer), std::pair("zero3", kAll)}) {
      TinyRun run = with({.ranks = 2, .micro_batches = 4, .steps = 5}, setting);
      run = with(run, {std::string("distributed.strategy=") + strategy});
      // Rank 1, in the third of its ten rounds: four units each.
      const auto spoiled = [](const TinyRun& of) {
        set_failpoints("engine.gradient=spoil@rank1@10");
        TinyResult result = train_tiny(of);
        set_failpoints("");
        return result;
      };
      SCOPED_TRACE(setting.front() + ", " + strategy);
      const TinyResult plain = spoiled(run), offloaded = spoiled(with(run, mode));
      EXPECT_TRUE(std::any_of(plain.gradient_norms.begin(), plain.gradient_norms.end(),
                              [](double norm) { return !std::isfinite(norm); }));
      EXPECT_EQ(offloaded.losses, plain.losses);
      EXPECT_EQ(offloaded.weights_digest, plain.weights_digest);
      EXPECT_TRUE(offloaded.all_ranks_equal);
    }
  }
}

// An update during the backward cannot be taken back: the error says so.
TEST(OffloadPrecision, SaysThatAnEarlyUpdateHasHappened) {
  TinyRun run{.micro_batches = 2, .steps = 3};
  run = with(run, kOptimizer);
  set_failpoints("engine.gradient=spoil@rank0@2");
  const std::string early = expect_error(1302, [&] { train_tiny(with(run, {"training.gradient_clipping=0"})); });
  EXPECT_NE(early.find("go on from a checkpoint"), std::string::npos) << early;
  set_failpoints("engine.gradient=spoil@rank0@2");
  const std::string waiting = expect_error(1302, [&] { train_tiny(run); });
  EXPECT_NE(waiting.find("are those of the step before"), std::string::npos) << waiting;
  set_failpoints("");
}

// Copies and host updates that come late, and all else too, change no bit.
TEST(OffloadDelays, ChangeNoBit) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (const bool clips : {false, true}) {
    TinyRun base{.micro_batches = 4, .steps = 2, .gpt2 = clips};
    base.overrides = {std::string("training.gradient_clipping=") + (clips ? "1" : "0"), "model.num_layers=3"};
    const TinyResult plain = train_tiny(base);
    set_failpoints("engine.instruction=delay(400)@every");
    for (int i = 0; i < 20; ++i) {
      const Offloads& row = kLegal[random() % std::size(kLegal)];
      TinyRun run = with(base, {std::string("distributed.strategy=") + row.strategy});
      run = with(run, row.modes[random() % row.modes.size()]);
      run.ranks = 1 + static_cast<int>(random() % 4);
      expect_bits_of_plain(run, plain);
    }
    set_failpoints("");
  }
}

// What one setting saved another goes on with; and what is evaluated on the way is the same.
TEST(OffloadCheckpoints, CrossSettingsAndEvaluateAlike) {
  const auto evaluations = [](const std::filesystem::path& folder) {
    std::vector<double> losses;
    std::ifstream file(folder / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      const auto record = nlohmann::json::parse(line);
      if (record.value("event", "") == "eval") losses.push_back(record["loss"].get<double>());
    }
    return losses;
  };
  const TemporaryFolder folder;
  for (const bool bf16 : {false, true}) {
    TinyRun base{.micro_batches = 5, .steps = 10, .bf16 = bf16};
    base.overrides = {"training.eval_interval=2"};
    base.output_dir = folder.path() / (bf16 ? "plain16" : "plain32");
    const TinyResult never_stopped = train_tiny(base);
    const std::vector<double> evaluated = evaluations(base.output_dir);
    ASSERT_EQ(evaluated.size(), 5u);
    base.output_dir = folder.path() / (bf16 ? "legs16" : "legs32");
    const std::tuple<const char*, int, Overrides> legs[] = {{"zero3", 3, kAll},
                                                            {"ddp", 2, {}},
                                                            {"zero1", 4, kOptimizer},
                                                            {"zero3", 1, kParameters},
                                                            {"zero2", 2, kOptimizer}};
    TinyResult last;
    std::vector<double> losses;
    for (std::int64_t leg = 0; leg < 5; ++leg) {
      const auto& [strategy, ranks, mode] = legs[leg];
      TinyRun run = with(with(base, {std::string("distributed.strategy=") + strategy}), mode);
      run.ranks = ranks;
      if (leg < 4) run.stop_at = [leg](int, std::int64_t step) { return step == 2 * leg + 2; };
      last = train_tiny(run);
      losses.insert(losses.end(), last.losses.begin(), last.losses.end());
    }
    EXPECT_EQ(losses, never_stopped.losses);
    EXPECT_EQ(last.weights_digest, never_stopped.weights_digest);
    std::vector<double> again = evaluations(base.output_dir);
    again.erase(std::unique(again.begin(), again.end()), again.end());
    EXPECT_EQ(again, evaluated);
  }
}

// A budget below what the device would take is kept by offloading, and named as the way out.
TEST(OffloadBudget, BelowThePlainPeakIsKept) {
  const TemporaryFolder folder;
  TinyRun base{.ranks = 2, .micro_batches = 4, .steps = 2, .output_dir = folder.path() / "run"};
  base.overrides = {"distributed.strategy=zero3", "training.gradient_checkpointing=full", "checkpoint.resume=never"};
  const TinyResult plain = train_tiny(base);
  const TinyRun offloaded = with(base, {"distributed.offload_param=cpu", "training.cpu_checkpointing=true"});
  const auto device_bytes = [](const TinyRun& run) {
    return train::describe_run(tiny_plan(run), run.ranks, 0).step.bytes();
  };
  const std::int64_t plain_peak = device_bytes(base), offloaded_peak = device_bytes(offloaded);
  ASSERT_LT(offloaded_peak, plain_peak);
  const std::string budget = "training.memory_budget=" + std::to_string((plain_peak + offloaded_peak) / 2);
  const std::string refusal = expect_error(2280, [&] { device_bytes(with(base, {budget})); });
  EXPECT_NE(refusal.find("distributed.offload_"), std::string::npos) << refusal;
  EXPECT_EQ(device_bytes(with(offloaded, {budget})), offloaded_peak);
  expect_bits_of_plain(with(offloaded, {budget}), plain);
}

struct OffloadBytes {
  const char* name;
  schedule::Sharding sharding;
  bool parameters;  // with the optimizer
  // Bytes per parameter on the device and on the host: fixed, and divided by the ranks.
  double fp32_device, fp32_device_sliced, bf16_device, bf16_device_sliced;
  double fp32_host, fp32_host_sliced, bf16_host, bf16_host_sliced;
};

// bf16: weights 2 and sums 4 stay, of 18; master, moments and the sums for the update are 16. fp32: weights 4 and sums
// 4 stay, and the master, which units then do not read, is apart: 16. With the parameters only the sums stay, and fp32
// needs one master.
constexpr schedule::Sharding kZero3 = {.parameters = true, .gradients = true, .optimizer = true};
constexpr OffloadBytes kOffloadBytes[] = {
    {"ddp", {}, false, 8, 0, 6, 0, 16, 0, 16, 0},
    {"zero1", {.optimizer = true}, false, 8, 0, 6, 0, 0, 16, 0, 16},
    {"zero2", {.gradients = true, .optimizer = true}, false, 4, 4, 2, 4, 0, 16, 0, 16},
    {"zero3", kZero3, false, 0, 8, 0, 6, 0, 16, 0, 16},
    {"zero3 with parameters", kZero3, true, 0, 4, 0, 4, 0, 16, 0, 18},
};

std::int64_t owned(const std::map<std::string, std::int64_t>& owners, const std::vector<std::string>& names) {
  std::int64_t bytes = 0;
  for (const std::string& name : names) {
    const auto found = owners.find(name);
    if (found != owners.end()) bytes += found->second;
  }
  return bytes;
}

// On every rank, of what an engine has mapped.
void expect_formula(const Chain& chain, DType dtype, const OffloadBytes& row, int ranks, double clipping) {
  SCOPED_TRACE(std::string(row.name) + ", " + std::to_string(ranks) + " ranks, clipping " + std::to_string(clipping) +
               (dtype == DType::f32 ? ", fp32" : ", bf16"));
  const engine::EngineOptions options{.micro_batch = {1, 64},
                                      .split = {ranks, ranks},
                                      .sharding = row.sharding,
                                      .offload_optimizer = true,
                                      .offload_parameters = row.parameters,
                                      .gradient_clipping = clipping};
  const auto check = [&](comm::Communicator& comm) {
    const engine::Engine engine(chain, options, comm);
    const engine::StepPlan& plan = engine.plan();
    EXPECT_EQ(engine.allocated_bytes(Tier::device), plan.device_bytes());
    EXPECT_EQ(engine.allocated_bytes(Tier::host), plan.host_bytes());
    const bool f32 = dtype == DType::f32;
    // Between the tiers: the sums, and a group's weights from its update until they are fetched.
    std::int64_t numel = 0, copy = 0;
    for (std::size_t group = 0; group < plan.groups.size(); ++group) {
      const std::int64_t own = plan.groups[group].numel / (plan.chain.groups[group].shards_optimizer ? ranks : 1);
      numel += plan.groups[group].numel;
      if (!row.parameters) copy = std::max(copy, schedule::align_place(own * (f32 ? 4 : 2)));
    }
    const auto of = [&](double whole, double sliced) { return static_cast<double>(numel) * (whole + sliced / ranks); };
    const Overrides kept = {"weights", "optimizer state", "gradient accumulators", "offloaded gradients"};
    EXPECT_EQ(static_cast<double>(owned(plan.memory_by_owner, kept)),
              f32 ? of(row.fp32_device, row.fp32_device_sliced) : of(row.bf16_device, row.bf16_device_sliced));
    EXPECT_EQ(static_cast<double>(owned(plan.host_memory_by_owner, kept)),
              f32 ? of(row.fp32_host, row.fp32_host_sliced) : of(row.bf16_host, row.bf16_host_sliced));
    EXPECT_EQ(plan.host_arena_bytes, copy);
  };
  auto comms = comm::make_local(ranks);
  std::vector<std::thread> threads;
  for (auto& comm : comms) threads.emplace_back([&] { check(*comm); });
  for (std::thread& thread : threads) thread.join();
}

TEST(OffloadMemory, OnBothTiersIsThatOfTheFormulas) {
  LlamaConfig config;
  config.vocabulary = 1000, config.hidden_size = 128, config.intermediate_size = 256, config.num_layers = 3;
  config.num_heads = 4, config.num_key_value_heads = 2, config.max_positions = 64;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Chain chain = make_chain(config, dtype);
    for (const OffloadBytes& row : kOffloadBytes) {
      for (const int ranks : {1, 2, 4}) {
        for (const double clipping : {0.0, 1.0}) expect_formula(chain, dtype, row, ranks, clipping);
      }
    }
  }
}

// With every block's input in host memory, the device's arena no longer grows with the number of blocks.
TEST(OffloadMemory, OfInputsDoesNotGrowWithDepth) {
  const auto bytes = [](int layers, bool offload) {
    LlamaConfig config;
    config.vocabulary = 500, config.hidden_size = 64, config.intermediate_size = 192, config.num_layers = layers;
    config.num_heads = 4, config.num_key_value_heads = 2, config.max_positions = 256;
    const Chain chain = make_chain(config, DType::f32);
    const engine::EngineOptions options{.micro_batch = {4, 256}, .recompute_every = 1, .offload_inputs = offload};
    const engine::StepPlan plan = engine::plan_step(chain, options, 0);
    return std::pair(plan.program().arena_bytes, plan.host_arena_bytes);
  };
  constexpr std::int64_t kInput = 4 * 256 * 64 * 4;
  const auto [shallow, shallow_host] = bytes(4, true);
  const auto [deep, deep_host] = bytes(16, true);
  EXPECT_EQ(deep, shallow);
  EXPECT_EQ(shallow_host, 3 * kInput) << "all but the last block's";
  EXPECT_EQ(deep_host, 15 * kInput);
  EXPECT_GT(bytes(16, false).first, deep + 10 * kInput);
}

}  // namespace
}  // namespace trireme::testing
