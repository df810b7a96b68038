// The loss scale, the sum over ranks, and the types of gradients on their way: the same bits under every strategy.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "models/model.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"
#include "train/engine_run.h"
#include "train/run_output.h"

namespace trireme::testing {
namespace {

void expect_same(const EngineResult& result, const EngineResult& serial) {
  EXPECT_EQ(result.weights_digest, serial.weights_digest);
  EXPECT_TRUE(result.all_ranks_equal);
  ASSERT_EQ(result.reports.size(), serial.reports.size());
  for (std::size_t i = 0; i < serial.reports.size(); ++i) {
    EXPECT_EQ(result.reports[i].loss, serial.reports[i].loss) << "step " << i + 1;
    EXPECT_EQ(result.reports[i].non_finite.has_value(), serial.reports[i].non_finite.has_value()) << "step " << i + 1;
    if (serial.reports[i].non_finite) continue;
    EXPECT_EQ(result.reports[i].gradient_norm, serial.reports[i].gradient_norm) << "step " << i + 1;
  }
}

// Every strategy on 1, 2, 3 and 5 ranks against one rank of ddp.
void expect_all_equal(const TinyRun& base, const std::function<void(engine::EngineOptions&)>& change,
                      const EngineResult& serial, const std::vector<std::string>& more = {}) {
  for (const char* strategy : kStrategies) {
    for (const int ranks : {1, 2, 3, 5}) {
      SCOPED_TRACE(std::string(strategy) + ", " + std::to_string(ranks) + " ranks");
      expect_same(run_engines({.run = with_strategy(base, strategy, ranks, more), .change = change}), serial);
    }
  }
}

constexpr double kBig = 65536;

TEST(LossScaling, APowerOfTwoChangesNoBitUnderAnyStrategy) {
  for (const bool bf16 : {false, true}) {
    const TinyRun base{.micro_batches = 5, .steps = 5, .bf16 = bf16};
    const EngineResult unscaled = run_engines({.run = with_strategy(base, "ddp", 1)});
    ASSERT_LT(unscaled.reports[0].clip_factor, 1) << "the clip must see the norm without the scale";
    expect_all_equal(
        base, [](engine::EngineOptions& options) { options.loss_scale = {.fixed = kBig}; }, unscaled);
  }
}

// STEP divides by the scale of its own backward, not by the one that it rises to (DeepSpeed issue 2686): with and
// without clipping, which would hide it.
TEST(LossScaling, ARisingScaleChangesNoBit) {
  const TinyRun base{.micro_batches = 5, .steps = 6};
  for (const char* clipping : {"training.gradient_clipping=1", "training.gradient_clipping=0"}) {
    SCOPED_TRACE(clipping);
    const std::vector<std::string> sgd = {"training.optimizer=sgd", clipping};
    const EngineResult unscaled = run_engines({.run = with_strategy(base, "ddp", 1, sgd)});
    const auto rising = [](engine::EngineOptions& options) {
      options.loss_scale = {.initial_power = 4, .window = 1};
      options.skips_non_finite = true;
    };
    EXPECT_EQ(run_engines({.run = with_strategy(base, "ddp", 1, sgd), .change = rising}).loss_scale.scale, 512);
    expect_all_equal(base, rising, unscaled, sgd);
  }
}

// A scale that rounds: the same everywhere, and close to none.
TEST(LossScaling, AnyScaleIsTheSameUnderEveryStrategy) {
  const TinyRun base{.micro_batches = 5, .steps = 4};
  const auto change = [](engine::EngineOptions& options) { options.loss_scale = {.fixed = 1000}; };
  const EngineResult scaled = run_engines({.run = with_strategy(base, "ddp", 1), .change = change});
  const EngineResult unscaled = run_engines({.run = with_strategy(base, "ddp", 1)});
  EXPECT_NE(scaled.weights_digest, unscaled.weights_digest);
  EXPECT_NEAR(scaled.reports[0].gradient_norm, unscaled.reports[0].gradient_norm,
              1e-6 * unscaled.reports[0].gradient_norm);
  expect_all_equal(base, change, scaled);
}

// fp32 overflows too where the scale is large enough: it falls until nothing does, on all ranks alike, then rises.
TEST(LossScaling, TheDynamicScaleFindsItsWayUnderEveryStrategy) {
  const TinyRun base{.micro_batches = 5, .steps = 12};
  const auto change = [](engine::EngineOptions& options) {
    options.loss_scale = {.initial_power = 130, .window = 2, .hysteresis = 1};
    options.skips_non_finite = true;
  };
  const EngineResult serial = run_engines({.run = with_strategy(base, "ddp", 1), .change = change});
  optim::LossScaleState expected{.scale = std::ldexp(1.0, 130)};
  int skipped = 0, good = 0;
  for (const engine::StepReport& report : serial.reports) {
    EXPECT_EQ(report.loss_scale, expected.scale);
    expected = optim::next_loss_scale({.window = 2, .hysteresis = 1}, expected, report.non_finite.has_value()).value();
    ++(report.non_finite ? skipped : good);
    EXPECT_EQ(report.non_finite.has_value(), !std::isfinite(report.gradient_norm));
  }
  EXPECT_EQ(serial.loss_scale, expected);
  EXPECT_GE(skipped, 2);
  EXPECT_GE(good, 4);
  expect_all_equal(base, change, serial);
}

TEST(LossScaling, AtItsMinimumARunThatStillOverflowsEnds) {
  const auto change = [](engine::EngineOptions& options) {
    options.loss_scale = {.initial_power = 500, .hysteresis = 1, .minimum = std::ldexp(1.0, 499)};
    options.skips_non_finite = true;
  };
  for (const char* strategy : kStrategies) {
    const TinyRun run = with_strategy({.micro_batches = 4, .steps = 4}, strategy, 3);
    const std::string text = expect_error(1303, [&] { run_engines({.run = run, .change = change}); });
    EXPECT_NE(text.find("the loss scale is at its minimum"), std::string::npos) << text;
    // All of them are, on every rank: the model's first is named, and who has its first part.
    EXPECT_NE(text.find("the gradient of model.embed_tokens.weight is not finite (found by rank 0)"), std::string::npos)
        << text;
    EXPECT_NE(text.find("mixed_precision=bf16"), std::string::npos) << text;
  }
  EXPECT_EQ(Error(1303, "", "").exit_code(), 93);
}

// fp16 as a configuration asks for it: the first scale is far too large, so the run begins with skipped steps.
TEST(LossScaling, Fp16RunsFindTheirScaleUnderEveryStrategyAndResumeWithIt) {
  const std::vector<std::string> fp16 = {"training.mixed_precision=fp16", "training.initial_scale_power=24",
                                         "training.hysteresis=1", "training.loss_scale_window=3"};
  const auto train = [](TinyRun run, const TemporaryFolder& folder) {
    run.output_dir = folder.path() / "run";
    return train_tiny(run);
  };
  const TinyRun base{.micro_batches = 5, .steps = 20};
  const TemporaryFolder folder;
  const TinyResult serial = train(with_strategy(base, "ddp", 1, fp16), folder);
  std::vector<double> scales;
  for (const nlohmann::json& step : records_of(folder.path() / "run", "")) scales.push_back(step.at("loss_scale"));
  ASSERT_EQ(scales.size(), 20u);
  EXPECT_EQ(scales[0], std::ldexp(1.0, 24));
  EXPECT_LT(*std::min_element(scales.begin(), scales.end()), scales[0]) << "it fell";
  bool rose = false;
  for (std::size_t i = 1; i < scales.size(); ++i) rose = rose || scales[i] > scales[i - 1];
  EXPECT_TRUE(rose);
  EXPECT_LT(serial.losses.back(), serial.losses.front()) << "and it learnt";
  for (const char* strategy : kStrategies) {
    SCOPED_TRACE(strategy);
    const TemporaryFolder whole, stopped;
    const TinyResult same = train(with_strategy(base, strategy, 3, fp16), whole);
    EXPECT_EQ(same.weights_digest, serial.weights_digest);
    EXPECT_EQ(same.losses, serial.losses);
    EXPECT_EQ(same.learning_rates, serial.learning_rates);
    EXPECT_TRUE(same.all_ranks_equal);
    TinyRun part = with_strategy(base, strategy, 2, fp16);
    for (const std::int64_t stop : {4, 11}) {
      part.stop_at = [stop](int, std::int64_t step) { return step == stop; };
      EXPECT_TRUE(train(part, stopped).stopped);
    }
    EXPECT_EQ(train(with_strategy(base, strategy, 4, fp16), stopped).weights_digest, serial.weights_digest);
  }
}

// gradient_allreduce_op sum: as a run on one rank whose loss is multiplied by the number of ranks.
TEST(GradientSum, EqualsASerialRunScaledAlike) {
  const TinyRun base{.micro_batches = 5, .steps = 4};
  const EngineResult mean = run_engines({.run = with_strategy(base, "ddp", 1)});
  for (const int ranks : {2, 3, 4}) {
    const auto change = [&](engine::EngineOptions& options) { options.gradient_factor = ranks; };
    const EngineResult serial = run_engines({.run = with_strategy(base, "ddp", 1), .change = change});
    for (const char* strategy : kStrategies) {
      SCOPED_TRACE(std::string(strategy) + ", " + std::to_string(ranks) + " ranks");
      expect_same(run_engines({.run = with_strategy(base, strategy, ranks, {"training.gradient_allreduce_op=sum"})}),
                  serial);
    }
    EXPECT_EQ(serial.reports[0].loss, mean.reports[0].loss) << "the loss stays the mean";
    if (ranks == 3) continue;  // rounds
    EXPECT_EQ(serial.reports[0].gradient_norm, ranks * mean.reports[0].gradient_norm);
  }
}

// Rounded before each addition, or in it: the same bits in every layout, other bits than fp32's.
TEST(GradientTypes, AreTheSameUnderEveryStrategy) {
  const TinyRun base{.micro_batches = 5, .steps = 4};
  const std::string full = run_engines({.run = with_strategy(base, "ddp", 1)}).weights_digest;
  std::string before = full;
  for (const std::vector<std::string>& types : {std::vector<std::string>{"training.reduce_dtype=bf16"},
                                                {"training.reduce_dtype=fp16"},
                                                {"training.grad_accum_dtype=bf16"},
                                                {"training.reduce_dtype=bf16", "training.grad_accum_dtype=bf16",
                                                 "training.optimizer=sgd", "training.momentum=0.9"}}) {
    SCOPED_TRACE(types.back());
    const EngineResult serial = run_engines({.run = with_strategy(base, "ddp", 1, types)});
    EXPECT_NE(serial.weights_digest, before);
    before = serial.weights_digest;
    expect_all_equal(
        base, [](engine::EngineOptions&) {}, serial, types);
  }
  const TinyRun bf16{.micro_batches = 5, .steps = 4, .bf16 = true};
  const std::vector<std::string> sums = {"training.grad_accum_dtype=bf16"};
  const EngineResult serial = run_engines({.run = with_strategy(bf16, "ddp", 1, sums)});
  expect_all_equal(
      bf16, [](engine::EngineOptions&) {}, serial, sums);
  // Gradients of bf16 are bf16 already.
  const std::string digest = run_engines({.run = with_strategy(bf16, "ddp", 1)}).weights_digest;
  EXPECT_EQ(run_engines({.run = with_strategy(bf16, "zero2", 3, {"training.reduce_dtype=bf16"})}).weights_digest,
            digest);
}

// Where ranks add up their own first, and where replicas do: another order, close to the same.
TEST(GradientTypes, StayCloseWhereTheOrderDiffers) {
  TinyRun base{.micro_batches = 6, .steps = 3, .reduce_each_micro_batch = false};
  const std::vector<std::string> types = {"training.reduce_dtype=bf16", "training.grad_accum_dtype=bf16"};
  const EngineResult serial = run_engines({.run = with_strategy(base, "ddp", 1, types)});
  std::vector<std::string> replicas = types;
  replicas.emplace_back("distributed.dp_replicate=2");
  for (const TinyRun& run : {with_strategy(base, "ddp", 2, types), with_strategy(base, "zero1", 3, types),
                             with_strategy(base, "hybrid_shard", 4, replicas)}) {
    SCOPED_TRACE(run.overrides[0]);
    const EngineResult other = run_engines({.run = run});
    EXPECT_TRUE(other.all_ranks_equal);
    const double norm = serial.reports[0].gradient_norm;
    EXPECT_NEAR(other.reports[0].gradient_norm, norm, 1e-2 * norm);
    EXPECT_NEAR(other.reports[2].loss, serial.reports[2].loss, 1e-3 * serial.reports[2].loss);
  }
}

TEST(GradientTypes, SumsOfBf16TakeHalfTheBytes) {
  LlamaConfig config;
  config.vocabulary = 1000, config.hidden_size = 128, config.intermediate_size = 256, config.num_layers = 3;
  config.num_heads = 4, config.num_key_value_heads = 2, config.max_positions = 64;
  const Chain chain = make_chain(config, DType::f32);
  engine::EngineOptions options{
      .micro_batch = {1, 64}, .split = {4, 4}, .sharding = {.gradients = true, .optimizer = true}};
  const auto plan = [&] { return engine::plan_step(chain, options, 1); };
  const std::int64_t full = plan().memory_by_owner.at("gradient accumulators");
  const std::int64_t wire = plan().options.wire_element_bytes;
  options.accumulator_dtype = DType::bf16;
  options.reduce_dtype = DType::bf16;
  EXPECT_EQ(2 * plan().memory_by_owner.at("gradient accumulators"), full);
  EXPECT_EQ(2 * plan().options.wire_element_bytes, wire);
}

}  // namespace
}  // namespace trireme::testing
