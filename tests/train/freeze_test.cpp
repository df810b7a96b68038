// training.freeze: what is not trained stays as it is, costs what it must, and changes no bit of the rest.
#include <gtest/gtest.h>

#include <random>

#include "checkpoint/model_folder.h"
#include "support/expect_error.h"
#include "support/seed.h"
#include "support/temporary_folder.h"
#include "train/convert.h"
#include "train/freeze.h"
#include "train/run_output.h"
#include "train/tiny_run.h"

namespace trireme::testing {
namespace {

// The embedding, which the head may share; a block in the middle of what is trained; all below the last block, so that
// the backward ends there; all but the head; parts of every block.
const std::vector<std::string> kLlama[] = {{"model.embed_tokens.weight"},
                                           {"model.layers.1.*"},
                                           {"model.embed*", "model.layers.0.*"},
                                           {"model.embed*", "model.layers.*"},
                                           {"*norm*", "*.mlp.down_proj.weight"}};
const std::vector<std::string> kGpt2[] = {{"transformer.wte.weight"},
                                          {"transformer.h.1.*"},
                                          {"transformer.w*", "transformer.h.0.*"},
                                          {"transformer.w*", "transformer.h.*"},
                                          {"*.bias", "*.attn.c_attn.weight"}};

std::string freezing(const std::vector<std::string>& patterns) {
  std::string list;
  for (const std::string& pattern : patterns) list += (list.empty() ? "'" : ", '") + pattern + "'";
  return "training.freeze=[" + list + "]";
}

TEST(Freeze, ChangesNoBitOfTheRestUnderAnyStrategy) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto pick = [&](const std::vector<std::string>& of) { return of[random() % of.size()]; };
  for (int family = 0; family < 4; ++family) {
    const bool gpt2 = family >= 2, tied = family != 1;
    for (const std::vector<std::string>& patterns : gpt2 ? kGpt2 : kLlama) {
      const TinyRun base = with({.micro_batches = 5, .steps = 3, .tied = tied, .bf16 = family % 2 == 0, .gpt2 = gpt2},
                                {freezing(patterns)});
      const TinyResult serial = train_tiny(base);
      for (const char* strategy : {"ddp", "zero1", "zero2", "zero3", "shard_grad_op"}) {
        TinyRun run = with(base, {std::string("distributed.strategy=") + strategy,
                                  "training.gradient_checkpointing=" + pick({"none", "selective", "full"}),
                                  "distributed.auto_wrap=" + pick({"transformer", "none"}),
                                  "distributed.persistence_threshold=" + pick({"0", "2000"})});
        run.ranks = 2 + static_cast<int>(random() % 3);
        std::string words = std::to_string(family) + ", " + std::to_string(run.ranks) + " ranks";
        for (const std::string& override : run.overrides) words += ", " + override;
        SCOPED_TRACE(words);
        const TinyResult parallel = train_tiny(run);
        EXPECT_EQ(parallel.losses, serial.losses);
        EXPECT_EQ(parallel.gradient_norms, serial.gradient_norms);
        EXPECT_EQ(parallel.weights_digest, serial.weights_digest);
        EXPECT_TRUE(parallel.all_ranks_equal);
      }
    }
  }
}

// A checkpoint has every tensor; the frozen ones are as they were drawn (in bf16: rounded), without optimizer state.
TEST(Freeze, CheckpointsAndExportsHoldAllTensorsAndFrozenOnesAsTheyWere) {
  const auto rounded = [](float value, const std::string& type) {
    return type == "bf16" ? float(bfloat16(value)) : type == "fp16" ? float(float16(value)) : value;
  };
  for (const std::string type : {"no", "bf16", "fp16"}) {
    for (const char* strategy : {"ddp", "zero2", "zero3"}) {
      SCOPED_TRACE(strategy + (", " + type));
      const TemporaryFolder folder;
      TinyRun run{.ranks = 2, .steps = 1, .tied = false, .output_dir = folder.path() / "all"};
      run.overrides = {std::string("distributed.strategy=") + strategy, "training.mixed_precision=" + type};
      if (type == "fp16") run.overrides.emplace_back("training.loss_scale=1");
      train_tiny(with(run, {"training.learning_rate=0", "training.min_learning_rate=0", "training.weight_decay=0"}));
      const auto drawn = saved_tensors(run.output_dir);
      run.output_dir = folder.path() / "some";
      run.steps = 4;
      train_tiny(with(run, {"training.freeze=[model.layers.*]"}));
      const auto saved = saved_tensors(run.output_dir);
      int frozen = 0;
      for (const auto& [name, values] : drawn) {
        const bool is_state = name.starts_with("exp_avg");
        const bool is_frozen = name.find("model.layers.") != std::string::npos;
        ASSERT_EQ(saved.contains(name), !is_state || !is_frozen) << name;
        if (is_state) continue;
        std::vector<float> expected = values;
        for (float& value : expected) value = rounded(value, type);
        if (is_frozen) {
          EXPECT_EQ(saved.at(name), expected) << name;
        } else {
          EXPECT_NE(saved.at(name), values) << name;
        }
        frozen += is_frozen;
      }
      EXPECT_EQ(frozen, 18);
      train::convert({.source = run.output_dir.string(), .output = folder.path() / "exported", .dtype = {}});
      const Chain chain = make_chain(checkpoint::read_model_config(folder.path() / "exported").model, DType::f32);
      const checkpoint::ModelWeights exported(folder.path() / "exported", chain.parameters);
      for (const ParameterSpec& parameter : chain.parameters) {
        for (const LogicalTensor& tensor : parameter.logical) {
          std::vector<float> values(static_cast<std::size_t>(tensor.box.numel()));
          exported.read(tensor.name, {0, tensor.box.rows(), 0, tensor.box.columns()}, values.data(),
                        tensor.box.columns());
          EXPECT_EQ(values, saved.at(tensor.name)) << tensor.name;
        }
      }
    }
  }
}

// Stopped and resumed under other strategies: the bits of the run that never stopped.
TEST(Freeze, RunsGoOnUnderOtherStrategies) {
  for (const bool bf16 : {false, true}) {
    const TinyRun base =
        with({.micro_batches = 5, .steps = 8, .bf16 = bf16}, {"training.freeze=[model.embed*, model.layers.0.*]"});
    const TinyResult never_stopped = train_tiny(base);
    const TemporaryFolder folder;
    TinyResult last;
    std::vector<double> losses;
    const std::pair<const char*, int> legs[] = {{"zero3", 3}, {"ddp", 2}, {"zero2", 4}, {"shard_grad_op", 2}};
    for (std::int64_t leg = 0; leg < 4; ++leg) {
      TinyRun run = with(base, {std::string("distributed.strategy=") + legs[leg].first});
      run.ranks = legs[leg].second;
      run.output_dir = folder.path() / "run";
      if (leg < 3) run.stop_at = [leg](int, std::int64_t step) { return step == 2 * leg + 2; };
      last = train_tiny(run);
      losses.insert(losses.end(), last.losses.begin(), last.losses.end());
    }
    EXPECT_EQ(losses, never_stopped.losses);
    EXPECT_EQ(last.weights_digest, never_stopped.weights_digest);
  }
}

// A run keeps what it trains: optimizer state that is missing is not made up, and none is thrown away.
TEST(Freeze, IsKeptOnResume) {
  const TemporaryFolder folder;
  TinyRun run{.steps = 2, .output_dir = folder.path() / "run", .overrides = {"training.freeze=[model.layers.0.*]"}};
  train_tiny(run);
  run.steps = 4;
  run.overrides = {};
  EXPECT_NE(expect_error(2224, [&] { train_tiny(run); }).find("it has no optimizer state"), std::string::npos);
  run.overrides = {"training.freeze=[model.layers.*]"};
  EXPECT_NE(expect_error(2224, [&] { train_tiny(run); }).find("trained it"), std::string::npos);
}

train::ResolvedRun small_run(DType dtype, const std::vector<std::string>& freeze) {
  LlamaConfig config;
  config.vocabulary = 1000, config.hidden_size = 128, config.intermediate_size = 256, config.num_layers = 3;
  config.num_heads = 4, config.num_key_value_heads = 2, config.max_positions = 64;
  train::ResolvedRun run;
  run.model = config;
  run.compute_dtype = dtype;
  run.freeze = freeze;
  return run;
}

// Frozen elements take what units read, 4 or 2 bytes, sliced with zero3, and nothing else; no slot is planned for them,
// and nothing is kept below the first unit that is trained.
TEST(Freeze, TakesTheBytesOfWhatIsReadAndNothingElse) {
  struct Row {
    schedule::Sharding sharding;
    double fp32_whole, fp32_sliced, bf16_whole, bf16_sliced;  // of trained ones, as in the design
  };
  const Row rows[] = {{{}, 16, 0, 18, 0},
                      {{.optimizer = true}, 8, 8, 6, 12},
                      {{.gradients = true, .optimizer = true}, 4, 12, 2, 16},
                      {{.parameters = true, .gradients = true, .optimizer = true}, 0, 16, 0, 18}};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    std::vector<std::string> notices;
    const Chain chain = train::make_training_chain(small_run(dtype, {"model.embed*", "model.layers.[01].*"}), notices);
    ASSERT_EQ(notices.size(), 1u);
    EXPECT_NE(notices[0].find("19 of 29 tensors, 423424 of 571264 parameters"), std::string::npos) << notices[0];
    for (const Row& row : rows) {
      for (const int ranks : {1, 2, 4}) {
        const engine::StepPlan plan = engine::plan_step(
            chain, {.micro_batch = {1, 64}, .split = {ranks, ranks}, .sharding = row.sharding}, ranks - 1);
        double trained = 0, frozen = 0;
        for (const StorageGroup& group : plan.groups) {
          (group.trainable ? trained : frozen) += static_cast<double>(group.numel);
        }
        const bool f32 = dtype == DType::f32;
        const double read = static_cast<double>(size_of(dtype)) / (row.sharding.parameters ? ranks : 1);
        const auto& owners = plan.memory_by_owner;
        EXPECT_EQ(static_cast<double>(owners.at("weights") + owners.at("optimizer state") +
                                      owners.at("gradient accumulators")),
                  frozen * read + trained * ((f32 ? row.fp32_whole : row.bf16_whole) +
                                             (f32 ? row.fp32_sliced : row.bf16_sliced) / ranks));
        for (const schedule::Buffer& buffer : plan.program().buffers) {
          const bool of_frozen = buffer.group >= 0 && !plan.groups[buffer.group].trainable;
          EXPECT_TRUE(!of_frozen || buffer.kind == schedule::BufferKind::weights ||
                      buffer.kind == schedule::BufferKind::weight_slice ||
                      buffer.kind == schedule::BufferKind::gathered);
          EXPECT_TRUE(buffer.kind != schedule::BufferKind::saved || buffer.unit == 3)
              << "layers.2 alone has a backward";
        }
        for (const schedule::Instruction& instruction : plan.program().instructions) {
          EXPECT_TRUE(instruction.op != schedule::Op::backward || instruction.unit == 3);
        }
      }
    }
  }
}

TEST(Freeze, RefusesPatternsThatMatchNothingAllOrAHalfOfAMatrix) {
  std::vector<std::string> notices;
  const auto make = [&](const std::vector<std::string>& freeze) {
    return [&notices, freeze] { train::make_training_chain(small_run(DType::f32, freeze), notices); };
  };
  const std::string nothing = expect_error(2291, make({"model.layers.*", "lm_head.*.bias"}));
  EXPECT_NE(nothing.find("lm_head.*.bias matches no tensor"), std::string::npos) << nothing;
  EXPECT_NE(nothing.find("model.embed_tokens.weight"), std::string::npos) << nothing;
  expect_error(2291, make({"*"}));
  const std::string half = expect_error(2292, make({"*.q_proj.*"}));
  EXPECT_NE(half.find("model.layers.0.self_attn.q_proj.weight, but not model.layers.0.self_attn.k_proj.weight"),
            std::string::npos)
      << half;
}

}  // namespace
}  // namespace trireme::testing
