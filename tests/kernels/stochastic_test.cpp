// State in bf16: how it is rounded, and that a step on it is otherwise the step in fp32.
#include "kernels/stochastic.h"

#include <array>
#include <cmath>
#include <limits>

#include "base/random.h"
#include "kernels/support.h"

namespace trireme::kernels {
namespace {

float value_of(std::uint16_t bits) {
  bfloat16 value;
  value.bits = bits;
  return value;
}

TEST(StochasticRounding, GoesUpAsOftenAsTheRestMakesUpOfAUnit) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  std::vector<float> x = numbers.normal<float>(20);
  x.insert(x.end(), {1.0f, 0.0f, -0.0f, 1e-40f, -3e-39f, 1.9999999f, 3.38e38f});
  for (const float value : x) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    std::int64_t up = 0;
    for (std::uint64_t random = 0; random < 0x10000; ++random) {
      const int place = static_cast<int>(random % kOfBlock);
      random_formulas::Words words{0, 0};
      (place < 4 ? words.first : words.second) = random << (place % 4 * 16);
      const std::uint16_t rounded = round_stochastically(value, words, place);
      ASSERT_TRUE(rounded == bits >> 16 || rounded == (bits >> 16) + 1) << value;
      up += rounded != bits >> 16;
    }
    EXPECT_EQ(up, bits & 0xffff) << value;
  }
}

TEST(StochasticRounding, LeavesInfinitiesAndNans) {
  const random_formulas::Words words{~std::uint64_t{0}, ~std::uint64_t{0}};
  for (const float sign : {1.0f, -1.0f}) {
    EXPECT_EQ(value_of(round_stochastically(sign * std::numeric_limits<float>::infinity(), words, 0)),
              sign * std::numeric_limits<float>::infinity());
  }
  for (const std::uint32_t nan : {0x7fffffffu, 0x7f800001u, 0xff80ffffu, 0xffc00000u}) {
    EXPECT_TRUE(std::isnan(value_of(round_stochastically(std::bit_cast<float>(nan), words, 3)))) << nan;
  }
}

// As kernels.h words it, from the random numbers that everybody has.
std::uint16_t rounded(float x, const StochasticRounding& r, int array, std::int64_t i) {
  const auto element = static_cast<std::uint64_t>(r.first + i);
  const auto block = random_block(r.seed, r.stream + static_cast<std::uint64_t>(array), r.step << 36 | element / 8);
  const std::uint32_t word = block[element % 8 / 2];
  return static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(x) + (word >> (element % 2 * 16) & 0xffff)) >> 16);
}

struct State {
  std::vector<float> master, m, v;
};

struct NarrowState {
  explicit NarrowState(const State& state)
      : master(state.master.begin(), state.master.end()),
        m(state.m.begin(), state.m.end()),
        v(state.v.begin(), state.v.end()) {}
  State in_floats() const { return {{master.begin(), master.end()}, {m.begin(), m.end()}, {v.begin(), v.end()}}; }
  std::vector<bfloat16> master, m, v;
};

constexpr std::pair<const char*, OptimizerKernel FlatTable::*> kOptimizers[] = {{"adamw", &FlatTable::adamw},
                                                                                {"adam", &FlatTable::adam},
                                                                                {"sgd", &FlatTable::sgd},
                                                                                {"adagrad", &FlatTable::adagrad},
                                                                                {"lion", &FlatTable::lion}};
constexpr OptimizerArguments kArguments{.learning_rate = 0.01,
                                        .beta1 = 0.9,
                                        .beta2 = 0.95,
                                        .eps = 1e-8,
                                        .weight_decay = 0.1,
                                        .bias_correction1 = 0.271,
                                        .bias_correction2 = 0.142625,
                                        .momentum = 0.9};

State positive_where_squared(Numbers& numbers, std::int64_t n) {
  State state{numbers.normal<float>(n), numbers.normal<float>(n), numbers.normal<float>(n)};
  for (auto* array : {&state.m, &state.v}) {
    for (float& value : *array) value = std::abs(value);
  }
  return NarrowState(state).in_floats();
}

std::vector<std::uint16_t> bits_of(const std::vector<bfloat16>& values) {
  std::vector<std::uint16_t> bits;
  for (const bfloat16 value : values) bits.push_back(value.bits);
  return bits;
}

std::vector<std::uint16_t> rounded(const std::vector<float>& values, const StochasticRounding& r, int array) {
  std::vector<std::uint16_t> bits;
  for (std::int64_t i = 0; i < std::ssize(values); ++i) bits.push_back(rounded(values[i], r, array, i));
  return bits;
}

TEST(StochasticRounding, AStepIsThatInFp32Rounded) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  const Update update{.gradient_scale = 0.5};
  const StochasticRounding rounding{.seed = 7, .stream = 1234567, .step = 3, .first = 256};
  for (const std::int64_t n : {1, 7, 8, 512, 1031, 40'000}) {
    const State before = positive_where_squared(numbers, n);
    const auto gradient = numbers.normal<bfloat16>(n);
    for (const Level level : levels_here()) {
      for (const auto& [name, kernel] : kOptimizers) {
        SCOPED_TRACE(::testing::Message() << name << ", " << n << " elements, " << to_string(level));
        State wide = before;
        NarrowState narrow(before);
        std::vector<bfloat16> weights(n);
        OptimizerRun run{n, wide.master.data(), wide.m.data(), wide.v.data(), gradient.data(), DType::bf16};
        (flat_table(level).*kernel)(kArguments, &update, run);
        run = {n,           narrow.master.data(), narrow.m.data(), narrow.v.data(), gradient.data(),
               DType::bf16, weights.data(),       DType::bf16,     DType::bf16,     DType::bf16,
               rounding};
        (flat_table(level).*kernel)(kArguments, &update, run);
        EXPECT_EQ(bits_of(narrow.master), rounded(wide.master, rounding, 0));
        EXPECT_EQ(bits_of(weights), bits_of(narrow.master));
        if (kernel == &FlatTable::adamw || kernel == &FlatTable::adam) {
          EXPECT_EQ(bits_of(narrow.v), rounded(wide.v, rounding, 2));
        }
        EXPECT_EQ(bits_of(narrow.m), rounded(wide.m, rounding, 1));
      }
    }
  }
}

// Masters in fp32 beside moments in bf16: these alone are rounded, and units' weights as ever.
TEST(StochasticRounding, MomentsAloneMayBeNarrow) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  constexpr std::int64_t n = 1500;
  const State before = positive_where_squared(numbers, n);
  const auto gradient = numbers.normal<float>(n);
  const Update update;
  for (const Level level : levels_here()) {
    State wide = before, mixed = before;
    NarrowState narrow(before);
    std::vector<float16> weights(n);
    flat_table(level).adamw(kArguments, &update,
                            {n, wide.master.data(), wide.m.data(), wide.v.data(), gradient.data()});
    flat_table(level).adamw(kArguments, &update,
                            {.n = n,
                             .master = mixed.master.data(),
                             .m = narrow.m.data(),
                             .v = narrow.v.data(),
                             .gradient = gradient.data(),
                             .weights = weights.data(),
                             .weights_dtype = DType::f16,
                             .moment_dtype = DType::bf16});
    EXPECT_TRUE(same_bits(mixed.master, wide.master)) << to_string(level);
    EXPECT_EQ(bits_of(narrow.m), rounded(wide.m, {}, 1)) << to_string(level);
    for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(weights[i].bits, float16(wide.master[i]).bits);
  }
}

TEST(StochasticRounding, NeitherCutsNorThreadsChangeABit) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  constexpr std::int64_t n = 100'000;
  const State before = positive_where_squared(numbers, n);
  const auto gradient = numbers.normal<float>(n);
  const Update update;
  const auto step = [&](NarrowState& state, std::int64_t begin, std::int64_t count) {
    flat_table().adamw(kArguments, &update,
                       {.n = count,
                        .master = state.master.data() + begin,
                        .m = state.m.data() + begin,
                        .v = state.v.data() + begin,
                        .gradient = gradient.data() + begin,
                        .master_dtype = DType::bf16,
                        .moment_dtype = DType::bf16,
                        .rounding = {.seed = 3, .stream = 99, .step = 12, .first = 4096 + begin}});
  };
  NarrowState whole(before), cut(before);
  step(whole, 0, n);
  const Threads threads(3);
  for (std::int64_t begin = 0; begin < n;) {
    const std::int64_t count = std::min(n - begin, 8 * (1 + numbers.below(6000)));
    step(cut, begin, count);
    begin += count;
  }
  EXPECT_TRUE(bits_of(cut.master) == bits_of(whole.master));
  EXPECT_TRUE(bits_of(cut.m) == bits_of(whole.m));
  EXPECT_TRUE(bits_of(cut.v) == bits_of(whole.v));
}

// Steps that are far below a unit of the weights add up: rounded to nearest, none would move anything.
TEST(StochasticRounding, SmallStepsAddUp) {
  constexpr std::int64_t n = 4096;
  std::vector<bfloat16> master(n, bfloat16(1.0f));
  const std::vector<float> gradient(n, 1.0f);
  const Update update;
  constexpr int kSteps = 400;
  for (std::uint64_t step = 1; step <= kSteps; ++step) {
    flat_table().sgd({.learning_rate = 1e-4}, &update,
                     {.n = n,
                      .master = master.data(),
                      .gradient = gradient.data(),
                      .master_dtype = DType::bf16,
                      .rounding = {.seed = 5, .stream = 1, .step = step}});
  }
  double sum = 0;
  for (const bfloat16 value : master) sum += static_cast<double>(static_cast<float>(value));
  // A unit below 1 is 2^-8; the mean of 4096 walks of 400 steps strays from 0.96 by about 0.0002.
  EXPECT_NEAR(sum / n, 1 - kSteps * 1e-4, 0.001);
}

TEST(StochasticRounding, AnUpdateThatSkipsMovesNothing) {
  std::vector<bfloat16> master(100, bfloat16(1.0f));
  const std::vector<float> gradient(100, 1.0f);
  const Update update{.skips = true};
  flat_table().sgd({.learning_rate = 1}, &update,
                   {.n = 100, .master = master.data(), .gradient = gradient.data(), .master_dtype = DType::bf16});
  for (const bfloat16 value : master) EXPECT_EQ(static_cast<float>(value), 1.0f);
}

}  // namespace
}  // namespace trireme::kernels
