#include "optim/law.h"

#include <gtest/gtest.h>

namespace trireme::optim {
namespace {

using config::LearningRateLaw;

Law law(LearningRateLaw kind) {
  return {.kind = kind, .peak = 1e-3, .minimum = 1e-4, .warmup_steps = 10, .total_steps = 110};
}

TEST(Law, WarmsUpLinearlyToThePeakAtTheLastWarmupStep) {
  for (const auto kind : {LearningRateLaw::constant, LearningRateLaw::linear, LearningRateLaw::cosine}) {
    EXPECT_DOUBLE_EQ(learning_rate(law(kind), 1), 1e-4);
    EXPECT_DOUBLE_EQ(learning_rate(law(kind), 5), 5e-4);
    EXPECT_DOUBLE_EQ(learning_rate(law(kind), 10), 1e-3);
  }
}

TEST(Law, ConstantStaysAtThePeak) {
  for (const int step : {11, 60, 110, 1000}) EXPECT_EQ(learning_rate(law(LearningRateLaw::constant), step), 1e-3);
}

TEST(Law, LinearAndCosineAreHalfWayInTheMiddleAndEndAtTheMinimum) {
  for (const auto kind : {LearningRateLaw::linear, LearningRateLaw::cosine}) {
    EXPECT_DOUBLE_EQ(learning_rate(law(kind), 60), 5.5e-4);
    EXPECT_DOUBLE_EQ(learning_rate(law(kind), 110), 1e-4);
    EXPECT_DOUBLE_EQ(learning_rate(law(kind), 5000), 1e-4);
  }
  EXPECT_NEAR(learning_rate(law(LearningRateLaw::linear), 35), 1e-4 + 9e-4 * 0.75, 1e-12);
  EXPECT_NEAR(learning_rate(law(LearningRateLaw::cosine), 35), 1e-4 + 9e-4 * 0.8535533905932737, 1e-12);
}

TEST(Law, NeverRisesAfterTheWarmup) {
  for (const auto kind : {LearningRateLaw::constant, LearningRateLaw::linear, LearningRateLaw::cosine}) {
    for (int step = 11; step < 120; ++step) {
      EXPECT_LE(learning_rate(law(kind), step), learning_rate(law(kind), step - 1)) << "step " << step;
    }
  }
}

TEST(Law, WithoutWarmupTheFirstStepIsNearThePeak) {
  Law l = law(LearningRateLaw::linear);
  l.warmup_steps = 0;
  EXPECT_DOUBLE_EQ(learning_rate(l, 1), 1e-4 + 9e-4 * (1.0 - 1.0 / 110));
}

}  // namespace
}  // namespace trireme::optim
