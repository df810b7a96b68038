// Every law, step by step, against torch.optim.lr_scheduler and against DeepSpeed's formulas written anew.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "optim/law.h"
#include "support/oracle.h"
#include "support/process.h"

namespace trireme::optim {
namespace {

using config::LearningRateLaw;
using config::WarmupType;
using nlohmann::json;
using testing::kOraclePython;

constexpr int kLawSteps = 250;

struct LawCase {
  Law law;
  int steps = kLawSteps;
};

Law warmup_law(LearningRateLaw kind, WarmupType type, std::int64_t steps, std::int64_t total) {
  return {.kind = kind,
          .peak = 2e-3,
          .warmup_steps = steps,
          .total_steps = total,
          .warmup = {.type = type, .minimum = 3e-5, .minimum_ratio = 0.1, .cosine_ratio = 0.02}};
}

std::vector<LawCase> cases() {
  std::vector<LawCase> list;
  for (const auto kind : {LearningRateLaw::constant, LearningRateLaw::linear, LearningRateLaw::cosine}) {
    // torch has no rate beyond the end of a cosine.
    list.push_back({{.kind = kind, .peak = 1e-3, .minimum = 1e-4, .warmup_steps = 13, .total_steps = 240}, 240});
  }
  for (const auto type : {WarmupType::logarithmic, WarmupType::linear}) {
    for (const std::int64_t steps : {0, 1, 2, 3, 40}) {
      list.push_back({warmup_law(LearningRateLaw::warmup, type, steps, 0)});
      list.push_back({warmup_law(LearningRateLaw::warmup_decay, type, steps, 201)});
      list.push_back({warmup_law(LearningRateLaw::warmup_decay, type, steps, 40)});
      // DeepSpeed's cosine turns round at i = total_steps, which is step total_steps + 2.
      list.push_back({warmup_law(LearningRateLaw::warmup_cosine, type, steps, 249)});
    }
  }
  for (const Cycle& cycle :
       {Cycle{1e-4, 60, 60, 0, 0.5}, Cycle{1e-4, 20, 71, 30, 0.7}, Cycle{1e-4, 1, 2, 1, 0}, Cycle{0, 100, 149, 7, 2}}) {
    list.push_back({{.kind = LearningRateLaw::one_cycle, .peak = 5e-3, .cycle = cycle}});
  }
  for (const RangeTest& test : {RangeTest{1e-4, 7, 1.5, false}, RangeTest{1e-4, 7, 1.5, true}}) {
    list.push_back({{.kind = LearningRateLaw::lr_range_test, .range_test = test}});
  }
  return list;
}

json described(const LawCase& one) {
  const Law& law = one.law;
  const char* names[] = {"constant",     "linear",        "cosine",    "warmup",
                         "warmup_decay", "warmup_cosine", "one_cycle", "lr_range_test"};
  json text{{"law", names[static_cast<int>(law.kind)]}, {"steps", one.steps}};
  const char* type = law.warmup.type == WarmupType::linear ? "linear" : "log";
  switch (law.kind) {
    case LearningRateLaw::constant:
    case LearningRateLaw::linear:
    case LearningRateLaw::cosine:
      text.update({{"peak", law.peak}, {"minimum", law.minimum}, {"warmup_steps", law.warmup_steps}});
      text["total"] = law.total_steps;
      break;
    case LearningRateLaw::warmup:
    case LearningRateLaw::warmup_decay:
    case LearningRateLaw::warmup_cosine:
      text.update({{"peak", law.peak}, {"minimum", law.warmup.minimum}, {"warmup_steps", law.warmup_steps}});
      text.update({{"type", type}, {"total", law.total_steps}, {"minimum_ratio", law.warmup.minimum_ratio}});
      text["cosine_ratio"] = law.warmup.cosine_ratio;
      break;
    case LearningRateLaw::one_cycle:
      text.update({{"peak", law.peak}, {"minimum", law.cycle.minimum}, {"first", law.cycle.first_steps}});
      text.update({{"second", law.cycle.second_steps}, {"decay_steps", law.cycle.decay_steps}});
      text["decay_rate"] = law.cycle.decay_rate;
      break;
    case LearningRateLaw::lr_range_test:
      text.update({{"minimum", law.range_test.minimum}, {"step_size", law.range_test.step_size}});
      text.update({{"rate_of_rise", law.range_test.rate}, {"staircase", law.range_test.staircase}});
  }
  return text;
}

TEST(Laws, FollowTorchAndDeepSpeedStepByStep) {
  if (!testing::oracle_has("torch")) GTEST_SKIP() << "no torch for Python here";
  const std::vector<LawCase> all = cases();
  json question = json::array();
  for (const LawCase& one : all) question.push_back(described(one));
  const auto result =
      testing::run({kOraclePython, "-B", TRIREME_SOURCE_DIR "/tests/optim/law_oracle.py", question.dump()});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json answer = json::parse(result.out);
  ASSERT_EQ(answer.size(), all.size());
  for (std::size_t c = 0; c < all.size(); ++c) {
    SCOPED_TRACE(question[c].dump());
    ASSERT_EQ(answer[c].size(), static_cast<std::size_t>(all[c].steps));
    for (int step = 1; step <= all[c].steps; ++step) {
      const double expected = answer[c][static_cast<std::size_t>(step) - 1];
      const double rate = learning_rate(all[c].law, step);
      if (std::abs(rate - expected) <= 1e-12 * std::abs(expected) + 1e-18) continue;
      ADD_FAILURE() << "step " << step << " has " << rate << ", not " << expected;
      break;
    }
  }
}

TEST(Laws, OfWarmupStayAtTheirEnd) {
  const auto at = [](LearningRateLaw kind, std::int64_t step) {
    return learning_rate(warmup_law(kind, WarmupType::logarithmic, 10, 100), step);
  };
  for (const std::int64_t step : {102, 103, 150, 1000000}) {
    EXPECT_DOUBLE_EQ(at(LearningRateLaw::warmup_cosine, step), 2e-3 * 0.02);
    EXPECT_DOUBLE_EQ(at(LearningRateLaw::warmup_decay, step), 3e-5);
    EXPECT_DOUBLE_EQ(at(LearningRateLaw::warmup, step), 2e-3);
  }
  // No steps are left to fall in.
  EXPECT_DOUBLE_EQ(learning_rate(warmup_law(LearningRateLaw::warmup_cosine, WarmupType::linear, 10, 10), 12),
                   2e-3 * 0.02);
}

}  // namespace
}  // namespace trireme::optim
