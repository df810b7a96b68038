// A plan written as YAML reads back to the same plan, bit for bit.
#include <bit>
#include <limits>
#include <random>

#include "config/schema.h"
#include "config/value.h"
#include "helpers.h"

namespace trireme::config {
namespace {

using Random = std::mt19937_64;

std::int64_t pick(Random& random, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}

std::string random_text(Random& random) {
  static const std::vector<std::string> kPieces = {
      "a", "Z", "0", " ", ".", "/", "-", "_",      ":",  "#", "'",  "\"",   "\\",   "\n", "\t",     "\x01",
      "{", "]", "&", "*", "!", "%", "é", "\u4e2d", "no", "~", "<<", "null", "1e-3", ", ", "\u2028", "\U0001F600"};
  std::string text = "p";  // not "~" first
  for (std::int64_t n = pick(random, 0, 12); n > 0; --n) {
    text += kPieces[static_cast<std::size_t>(pick(random, 0, std::ssize(kPieces) - 1))];
  }
  return text;
}

// A value of any magnitude inside the range.
double random_number(Random& random, const Range& range) {
  for (;;) {
    const auto bits = static_cast<std::uint64_t>(random());
    double value = std::bit_cast<double>(bits);
    if (range.high <= 1) value = std::generate_canonical<double, 53>(random);
    if (!std::isfinite(value) || value < range.low || value > range.high) continue;
    if ((range.above_low && value == range.low) || (range.below_high && value == range.high)) continue;
    return value;
  }
}

Value random_value(Random& random, const Key& key) {
  if (key.optional && pick(random, 0, 2) == 0) return {};
  switch (key.type) {
    case Type::boolean: return pick(random, 0, 1) == 1;
    case Type::integer: {
      const double high = std::min(key.range.high, 9e18);
      return pick(random, static_cast<std::int64_t>(key.range.low), static_cast<std::int64_t>(high));
    }
    case Type::number: return random_number(random, key.range);
    case Type::choice:
      return std::string(key.choices[static_cast<std::size_t>(pick(random, 0, std::ssize(key.choices) - 1))]);
    case Type::choices: {
      Words words;
      for (const std::string_view choice : key.choices) {
        if (pick(random, 0, 1) == 1) words.emplace_back(choice);
      }
      return words;
    }
    case Type::texts: {
      Words words;
      for (std::int64_t n = pick(random, 0, 3); n > 0; --n) words.push_back(random_text(random));
      return words;
    }
    default: return random_text(random);
  }
}

// Random in every key, then made to fit together.
Plan random_plan(Random& random) {
  Plan plan{};
  for (const Key& key : keys()) {
    if (key.tier == Tier::supported) key.field.set(plan, key, random_value(random, key));
  }
  plan.name = "run-" + std::to_string(random());
  plan.model.num_key_value_heads = pick(random, 1, 64);
  plan.model.num_heads = plan.model.num_key_value_heads * pick(random, 1, 64);
  plan.model.head_dim = 2 * pick(random, 1, 512);
  if (plan.model.family == "gpt2") {
    plan.model.num_key_value_heads = plan.model.num_heads;
    plan.model.head_dim = 2 * pick(random, 1, 32);
    plan.model.hidden_size = plan.model.num_heads * plan.model.head_dim;
    plan.model.rope_theta = 10000;
  } else {
    plan.model.hidden_dropout = 0;
  }
  plan.model.max_position_embeddings = std::max(plan.model.max_position_embeddings, plan.data.sequence_length);
  TrainingPlan& training = plan.training;
  if (!training.max_steps && !training.num_epochs) training.num_epochs = 1;
  if (training.max_steps) training.warmup_steps = pick(random, 0, *training.max_steps);
  training.micro_batch_size = pick(random, 1, 1000);
  if (training.global_batch_size) training.global_batch_size = *training.micro_batch_size * pick(random, 1, 1000000);
  if (training.momentum == 0) training.nesterov = false;
  if (!plan.law.cycle_min_learning_rate && training.lr_scheduler == LearningRateLaw::one_cycle) {
    plan.law.cycle_min_learning_rate = 0;
  }
  PrecisionPlan& precision = plan.precision;
  if (precision.param_dtype) precision.param_dtype = training.mixed_precision;
  if (training.mixed_precision != MixedPrecision::bf16) precision.master_dtype = ElementType::fp32;
  const bool fp16 = training.mixed_precision == MixedPrecision::fp16;
  if (!fp16 && precision.loss_scale) precision.loss_scale = static_cast<double>(pick(random, 0, 1));
  if (fp16) precision.nonfinite_gradients = NonFiniteGradients::skip;
  precision.min_loss_scale = std::min(precision.min_loss_scale, 1.0);
  DistributedPlan& distributed = plan.distributed;
  if (distributed.offload_param == Offload::cpu) {
    distributed.strategy = Strategy::zero3;
    distributed.offload_optimizer = Offload::cpu;
  }
  if (!distributed.wrap_classes.empty()) {
    distributed.wrap_classes.emplace_back(plan.model.family == "gpt2" ? "GPT2Block" : "LlamaDecoderLayer");
  }
  if (training.cpu_checkpointing) training.gradient_checkpointing = Recompute::full;
  if (training.min_learning_rate > training.learning_rate) {
    std::swap(training.min_learning_rate, training.learning_rate);
  }
  return plan;
}

bool same_bits(const Value& a, const Value& b) {
  if (a != b) return false;
  const auto* x = std::get_if<double>(&a);
  return x == nullptr || std::bit_cast<std::uint64_t>(*x) == std::bit_cast<std::uint64_t>(std::get<double>(b));
}

TEST(RoundTrip, AnyPlanReadsBackBitForBit) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  for (int i = 0; i < 1000; ++i) {
    const Plan plan = random_plan(random);
    const std::string yaml = to_yaml(plan);
    Plan again;
    try {
      again = plan_of(yaml);
    } catch (const Error& error) {
      FAIL() << error.what() << "\n" << yaml;
    }
    for (const Key& key : keys()) {
      if (key.tier != Tier::supported) continue;
      EXPECT_TRUE(same_bits(key.field.get(plan, key), key.field.get(again, key))) << key.name << "\n" << yaml;
    }
    EXPECT_EQ(plan.name, again.name);
    EXPECT_EQ(plan.output_dir, again.output_dir);
    EXPECT_EQ(plan.model, again.model);
    EXPECT_EQ(plan.data, again.data);
    EXPECT_EQ(plan.training, again.training);
    EXPECT_EQ(plan.precision, again.precision);
    EXPECT_EQ(plan.distributed, again.distributed);
    EXPECT_EQ(plan.checkpoint, again.checkpoint);
    EXPECT_EQ(plan.monitor, again.monitor);
    EXPECT_EQ(to_yaml(again), yaml);
    EXPECT_EQ(numeric_digest(plan), numeric_digest(again));
    if (HasFailure()) return;
  }
}

TEST(RoundTrip, NumbersKeepTheirBits) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  const Range any;
  std::vector<double> values = {0.0, -0.0, 0.1, 5e-324, std::numeric_limits<double>::max(), 1e22, 9007199254740993.0};
  for (int i = 0; i < 100000; ++i) values.push_back(random_number(random, any));
  for (const double value : values) {
    const auto again = parse_number(to_text(value));
    ASSERT_TRUE(again);
    ASSERT_EQ(std::bit_cast<std::uint64_t>(value), std::bit_cast<std::uint64_t>(*again)) << to_text(value);
  }
}

TEST(Integers, AreWholeOrNotIntegers) {
  const std::vector<std::pair<std::string, std::int64_t>> good = {{"0", 0},
                                                                  {"-0", 0},
                                                                  {"+7", 7},
                                                                  {"5e8", 500000000},
                                                                  {"3.0", 3},
                                                                  {"1.50e1", 15},
                                                                  {"0x1F", 31},
                                                                  {"0o17", 15},
                                                                  {"-12", -12},
                                                                  {"120e-1", 12},
                                                                  {"0e400", 0},
                                                                  {"9223372036854775807", INT64_MAX},
                                                                  {"1e18", 1000000000000000000},
                                                                  {"9007199254740993e0", 9007199254740993},
                                                                  {"-9223372036854775808", INT64_MIN},
                                                                  {"0.0", 0}};
  for (const auto& [text, value] : good) EXPECT_EQ(parse_integer(text), value) << text;
  for (const char* text : {"",   "-", "+",  "1.5", "1e-1",  "010", "1_000", "0x",  "0xG",   "0o8",     "1e",
                           "e5", ".", "1 ", " 1",  "1,000", "ten", "--1",   "0b1", "1e5e5", "\xD9\xA1"}) {
    EXPECT_EQ(parse_integer(text), std::nullopt) << text;
  }
  for (const char* text : {"9223372036854775808", "1e19", "1e999999999999", "0xFFFFFFFFFFFFFFFFF", "-1e19"}) {
    EXPECT_THROW(parse_integer(text), std::out_of_range) << text;
  }
}

TEST(Numbers, AreDecimal) {
  EXPECT_EQ(parse_number("1e-3"), 1e-3);
  EXPECT_EQ(parse_number("+.5"), 0.5);
  EXPECT_EQ(parse_number("-5."), -5.0);
  EXPECT_EQ(parse_number("-.INF"), -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(parse_number(".nan").value_or(0)));
  for (const char* text : {"", ".", "e1", "inf", "nan", "0x1p3", "1e", "1.2.3", "1f", "1 000"}) {
    EXPECT_EQ(parse_number(text), std::nullopt) << text;
  }
  EXPECT_THROW(parse_number("1e400"), std::out_of_range);
  EXPECT_THROW(parse_number("1e-400"), std::out_of_range);
}

}  // namespace
}  // namespace trireme::config
