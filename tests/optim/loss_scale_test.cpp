#include "optim/loss_scale.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "support/seed.h"

namespace trireme::optim {
namespace {

// 'O' overflows, 'G' is good: the scale after each.
std::vector<double> scales_after(const LossScaleOptions& options, const std::string& steps) {
  LossScaleState state = initial_loss_scale(options);
  std::vector<double> scales;
  for (const char step : steps) {
    state = next_loss_scale(options, state, step == 'O').value();
    scales.push_back(state.scale);
  }
  return scales;
}

constexpr LossScaleOptions kSmall{.initial_power = 4, .window = 2, .hysteresis = 2};

TEST(LossScale, FollowsTheSequenceOfDeepSpeed) {
  LossScaleState state = initial_loss_scale(kSmall);
  const std::pair<char, LossScaleState> expected[] = {{'O', {16, 0, 1}}, {'O', {8, 0, 1}},  {'G', {8, 1, 1}},
                                                      {'G', {8, 2, 1}},  {'G', {16, 3, 2}}, {'O', {16, 0, 1}}};
  for (const auto& [step, after] : expected) {
    state = next_loss_scale(kSmall, state, step == 'O').value();
    EXPECT_EQ(state, after);
  }
}

TEST(LossScale, DoublesAfterEachWindowWithoutAnOverflow) {
  EXPECT_EQ(scales_after(kSmall, "GGGGGGG"), (std::vector<double>{16, 16, 32, 32, 64, 64, 128}));
}

TEST(LossScale, ConsecutiveHysteresisForgivesOneOverflowAfterEachGoodStep) {
  LossScaleOptions options = kSmall;
  options.window = 100;
  EXPECT_EQ(scales_after(options, "OGOGO"), (std::vector<double>{16, 16, 8, 8, 4}));
  options.consecutive_hysteresis = true;
  EXPECT_EQ(scales_after(options, "OGOGOO"), (std::vector<double>{16, 16, 16, 16, 16, 8}));
}

TEST(LossScale, StopsAtItsMinimumAndThenGivesUp) {
  LossScaleOptions options{.initial_power = 2, .hysteresis = 1, .minimum = 1.5};
  EXPECT_EQ(scales_after(options, "OO"), (std::vector<double>{2, 1.5}));
  EXPECT_FALSE(next_loss_scale(options, {.scale = 1.5, .hysteresis = 1}, true));
  EXPECT_EQ(next_loss_scale(options, {.scale = 1.5, .hysteresis = 2}, true)->hysteresis, 1) << "there was one left";
}

TEST(LossScale, AFixedOneStays) {
  EXPECT_EQ(scales_after({.fixed = 1024}, "OOOGGGO"), std::vector<double>(7, 1024.0));
}

// The rules once more as DeepSpeed keeps them: by the number of the step, and of the last overflow.
class ByIteration {
 public:
  explicit ByIteration(const LossScaleOptions& options)
      : options_(options), scale_(std::pow(2.0, options.initial_power)), budget_(options.hysteresis) {}

  bool update(bool overflow) {
    if (overflow) {
      if (options_.hysteresis == 1 || budget_ == 1) {
        if (scale_ == options_.minimum) return false;
        scale_ = std::max(scale_ / 2, options_.minimum);
      } else {
        --budget_;
      }
      last_overflow_ = iteration_;
    } else {
      if (options_.consecutive_hysteresis) budget_ = options_.hysteresis;
      const std::int64_t stable = iteration_ - last_overflow_ - 1;
      if (stable > 0 && stable % options_.window == 0) {
        if (!options_.consecutive_hysteresis) budget_ = options_.hysteresis;
        scale_ *= 2;
      }
    }
    ++iteration_;
    return true;
  }
  double scale() const { return scale_; }
  int budget() const { return budget_; }

 private:
  LossScaleOptions options_;
  double scale_;
  int budget_;
  std::int64_t iteration_ = 0, last_overflow_ = -1;
};

TEST(LossScale, EqualsTheRulesByIterationOnRandomSequences) {
  const unsigned seed = testing::test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  int gave_up = 0;
  for (int round = 0; round < 2000; ++round) {
    const LossScaleOptions options{.initial_power = static_cast<int>(random() % 12),
                                   .window = 1 + static_cast<std::int64_t>(random() % 7),
                                   .hysteresis = 1 + static_cast<int>(random() % 4),
                                   .consecutive_hysteresis = random() % 2 == 0,
                                   .minimum = std::ldexp(1.0, -static_cast<int>(random() % 3))};
    const unsigned overflows_in_ten = random() % 10;
    ByIteration expected(options);
    LossScaleState state = initial_loss_scale(options);
    for (int step = 0; step < 200; ++step) {
      const bool overflow = random() % 10 < overflows_in_ten;
      const auto next = next_loss_scale(options, state, overflow);
      ASSERT_EQ(next.has_value(), expected.update(overflow)) << "round " << round << ", step " << step;
      if (!next) {
        ++gave_up;
        break;
      }
      state = *next;
      ASSERT_EQ(state.scale, expected.scale()) << "round " << round << ", step " << step;
      ASSERT_EQ(state.hysteresis, expected.budget()) << "round " << round << ", step " << step;
    }
  }
  EXPECT_GT(gave_up, 50);
}

}  // namespace
}  // namespace trireme::optim
