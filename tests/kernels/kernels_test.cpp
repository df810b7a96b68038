// What single kernels promise, at every level that the CPU has.
#include <cmath>
#include <limits>

#include "base/random.h"
#include "kernels/support.h"

namespace trireme::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// torch.optim.AdamW's formula in double.
struct ReferenceAdamW {
  std::vector<double> master, m, v;
  void step(const OptimizerArguments& a, const Update& update, const std::vector<float>& gradient) {
    for (std::size_t i = 0; i < master.size(); ++i) {
      const double g = gradient[i] * update.gradient_scale;
      master[i] *= 1 - a.learning_rate * a.weight_decay;
      m[i] += (g - m[i]) * (1 - a.beta1);
      v[i] = v[i] * a.beta2 + g * g * (1 - a.beta2);
      const double denominator = std::sqrt(v[i]) / std::sqrt(a.bias_correction2) + a.eps;
      master[i] -= a.learning_rate / a.bias_correction1 * m[i] / denominator;
    }
  }
};

TEST(Kernels, AdamWFollowsTorchsFormulaOverFiftySteps) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  constexpr std::int64_t n = 517;
  for (const Level level : levels_here()) {
    auto master = numbers.normal<float>(n);
    std::vector<float> m(n), v(n);
    ReferenceAdamW reference{{master.begin(), master.end()}, std::vector<double>(n), std::vector<double>(n)};
    OptimizerArguments a{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
    for (int step = 1; step <= 50; ++step) {
      a.learning_rate = 1e-3 * step / 50;
      a.bias_correction1 = 1 - std::pow(a.beta1, step);
      a.bias_correction2 = 1 - std::pow(a.beta2, step);
      const Update update{.gradient_scale = step % 3 == 0 ? 0.37 : 1.0};
      const auto gradient = numbers.normal<float>(n);
      flat_table(level).adamw(a, &update, {n, master.data(), m.data(), v.data(), gradient.data()});
      reference.step(a, update, gradient);
    }
    double difference = 0, norm = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      difference += std::pow(master[i] - reference.master[i], 2);
      norm += std::pow(reference.master[i], 2);
    }
    EXPECT_LE(std::sqrt(difference / norm), 1e-6) << to_string(level);
  }
}

TEST(Kernels, SumOfSquaresLetsNanAndInfinityThrough) {
  for (const Level level : levels_here()) {
    for (const std::int64_t place : {0, 5, 39, 40}) {
      std::vector<float> x(41, 1.0f);
      x[place] = kNan;
      EXPECT_TRUE(std::isnan(sum_of_squares(flat_table(level), x)));
      x[place] = -kInfinity;
      EXPECT_EQ(sum_of_squares(flat_table(level), x), kInfinity);
      x[place] = 1e30f;  // its square is beyond float, not beyond double
      EXPECT_NEAR(sum_of_squares(flat_table(level), x), 1e60, 1e54);
    }
    EXPECT_EQ(sum_of_squares(flat_table(level), std::vector<float>()), 0.0);
  }
}

// silu shows the kernels' own exponential: within a few ulp, and right where it over- and underflows.
TEST(Kernels, SiluIsAccurateOverTheWholeRange) {
  std::vector<float> x;
  for (float value = -90.0f; value <= 90.0f; value += 0.0137f) x.push_back(value);
  for (const float value : {0.0f, -1e30f, 1e30f, 1e-30f, -88.7f, 88.7f}) x.push_back(value);
  const auto F = static_cast<std::int64_t>(x.size());
  std::vector<float> gate_up = x, y(F);
  gate_up.resize(2 * F, 1.0f);
  for (const Level level : levels_here()) {
    table<float>(level).glu_forward(Activation::silu, 1, F, gate_up.data(), y.data());
    for (std::int64_t i = 0; i < F; ++i) {
      const double expected = x[i] / (1 + std::exp(-static_cast<double>(x[i])));
      ASSERT_NEAR(y[i], expected, 5e-7 * std::abs(expected) + 1e-36) << x[i] << " at " << to_string(level);
    }
  }
}

// The order of rows decides what is left of 1 beside 1e8; rows without an id become zero, or stay when adding.
TEST(Kernels, EmbeddingGradientsAddUpInOrderOfRows) {
  constexpr std::int64_t C = 19, V = 7;
  const std::vector<std::int32_t> ids{3, 1, 3, 3, 1, 3};
  const float values[] = {1e8f, 5.0f, 1.0f, -1e8f, 0.5f, 0.25f};
  std::vector<float> dy;
  for (const float value : values) dy.insert(dy.end(), C, value);
  for (const Level level : levels_here()) {
    for (const bool add : {false, true}) {
      std::vector<float> dw(V * C, 2.0f);
      std::vector<char> workspace(embedding_workspace(6, V, C));
      table<float>(level).embedding_backward(6, C, V, ids.data(), dy.data(), dw.data(), add, workspace.data());
      const float before = add ? 2.0f : 0.0f;
      for (std::int64_t v = 0; v < V; ++v) {
        const float expected = before + (v == 3 ? 0.25f : v == 1 ? 5.5f : 0.0f);  // 1e8 + 1 - 1e8 is 0 in float
        for (std::int64_t c = 0; c < C; ++c) ASSERT_EQ(dw[v * C + c], expected) << v << to_string(level);
      }
    }
  }
}

TEST(Kernels, EmbeddingGradientsMayStayInFloat) {
  constexpr std::int64_t C = 19, V = 3;
  const std::vector<std::int32_t> ids{2, 0, 2};
  std::vector<bfloat16> dy;
  for (const float value : {1.0f, 5.0f, 0.0078125f}) dy.insert(dy.end(), C, bfloat16(value));  // 2^-7: no bf16 beside 2
  for (const Level level : levels_here()) {
    for (const bool add : {false, true}) {
      std::vector<float> dw(V * C, 1.0f);
      std::vector<char> workspace(embedding_workspace(3, V, C));
      table<bfloat16>(level).embedding_backward_unrounded(3, C, V, ids.data(), dy.data(), dw.data(), add,
                                                          workspace.data());
      const float before = add ? 1.0f : 0.0f, expected[] = {before + 5.0f, before, before + 1.0078125f};
      for (std::int64_t i = 0; i < V * C; ++i) ASSERT_EQ(dw[i], expected[i / C]) << i << to_string(level);
    }
  }
}

TEST(Kernels, CrossEntropyHoldsForExtremeLogits) {
  constexpr std::int64_t V = 21, stride = 24;
  for (const Level level : levels_here()) {
    const Table<float>& k = table<float>(level);
    std::vector<float> row(stride, -1e4f);
    row[20] = 1e4f;
    const auto loss = [&](std::vector<float> logits, std::int32_t label) {
      double evaluated = 0, trained = 0;
      k.cross_entropy_loss(1, V, stride, logits.data(), &label, &evaluated);
      k.cross_entropy(1, V, stride, 0, logits.data(), &label, 1.0, &trained);
      EXPECT_EQ(std::isnan(evaluated), std::isnan(trained));
      EXPECT_TRUE(std::isnan(trained) || evaluated == trained);
      return trained;
    };
    EXPECT_EQ(loss(row, 20), 0.0);
    EXPECT_EQ(loss(row, 3), 2e4);
    EXPECT_NEAR(loss(std::vector<float>(stride, 1e38f), 5), std::log(21.0), 1e-6);
    row[7] = -kInfinity;  // a masked token
    EXPECT_EQ(loss(row, 20), 0.0);
    EXPECT_EQ(loss(row, 7), kInfinity);
    for (const std::int64_t place : {0, 3, 20}) {
      auto broken = row;
      broken[place] = kNan;
      EXPECT_TRUE(std::isnan(loss(broken, 3))) << place << to_string(level);
    }
  }
}

TEST(Kernels, CrossEntropyGradientsAreZeroWhereNothingCounts) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  constexpr std::int64_t N = 3, V = 37, stride = 48;
  const std::vector<std::int32_t> labels{5, -1, 36};
  for (const Level level : levels_here()) {
    auto logits = numbers.normal<float>(N * stride, 3.0);
    double total = 0;
    table<float>(level).cross_entropy(N, V, stride, 0, logits.data(), labels.data(), 0.5, &total);
    for (std::int64_t n = 0; n < N; ++n) {
      double sum = 0;
      for (std::int64_t v = 0; v < stride; ++v) {
        const float gradient = logits[n * stride + v];
        sum += gradient;
        if (labels[n] < 0 || v >= V) {
          EXPECT_EQ(gradient, 0.0f);
        } else {
          EXPECT_EQ(gradient < 0, v == labels[n]);
        }
      }
      EXPECT_NEAR(sum, 0.0, 1e-6);
    }
  }
}

// Keys that no row of a block may see are not even read: NaN there stays there.
TEST(Kernels, AttentionSkipsBlocksBehindDocumentBordersAndInTheFuture) {
  constexpr std::int64_t S = 192, D = 8;
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  for (const Level level : levels_here()) {
    auto qkv = numbers.normal<float>(S * 3 * D);
    for (std::int64_t t = 0; t < 64; ++t) qkv[t * 3 * D + D] = kNan;       // keys of the first document
    for (std::int64_t t = 128; t < S; ++t) qkv[t * 3 * D + 2 * D] = kNan;  // values of the last block
    std::vector<std::int32_t> starts(S);
    for (std::int64_t t = 64; t < S; ++t) starts[t] = 64;
    std::vector<float> out(S * D), lse(S);
    std::vector<char> workspace(attention_workspace({.T = S, .D = D}, DType::f32, false, num_threads()));
    table<float>(level).attention_forward({1, S, 1, 1, D, 0.3}, {}, qkv.data(), starts.data(), out.data(), lse.data(),
                                          workspace.data());
    for (std::int64_t t = 0; t < S; ++t) {
      EXPECT_EQ(std::isnan(out[t * D]), t < 64 || t >= 128) << t << to_string(level);
    }
  }
}

// Sequences of other lengths, whose last rows find the keys and values before them in caches.
template <class T>
void expect_attention_of_the_whole_sequence(Level level, Numbers& numbers, double tolerance) {
  using Acc = typename AccumulatorOf<T>::type;
  const std::int64_t S = 100 + numbers.below(80), T_new = 1 + numbers.below(70), K = 2, H = 6,
                     D = 2 * (1 + numbers.below(20));
  const AttentionShape whole{2, S, H, K, D, 0.4, 5.0}, last{2, T_new, H, K, D, 0.4, 5.0, S - T_new};
  const std::int64_t width = whole.qkv_width(), kept = 2 * K * D;
  const std::vector<T> qkv = numbers.normal<T>(2 * S * width);
  const std::vector<std::int32_t> past{static_cast<std::int32_t>(S - T_new),
                                       static_cast<std::int32_t>(numbers.below(S - T_new + 1))};
  std::vector<std::int32_t> starts(2 * S), last_starts(2 * T_new);
  for (std::int64_t n = 0; n < 2 * S; ++n) starts[n] = static_cast<std::int32_t>(std::max<std::int64_t>(n % S - 50, 0));
  std::vector<T> out(2 * S * H * D), last_out(2 * T_new * H * D), last_rows(2 * T_new * width);
  std::vector<Acc> lse(2 * H * S), last_lse(2 * H * T_new);
  std::vector<char> workspace(attention_workspace({.T = S, .D = D}, dtype_of<T>, false, num_threads()));
  table<T>(level).attention_forward(whole, {}, qkv.data(), starts.data(), out.data(), lse.data(), workspace.data());
  std::vector<std::vector<T>> caches(2), filled(2);
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t t = 0; t < past[b] + T_new; ++t) {
      const T* row = &qkv[(b * S + t) * width];
      filled[b].insert(filled[b].end(), row + width - kept, row + width);
    }
    caches[b].assign(filled[b].begin(), filled[b].begin() + past[b] * kept);
    caches[b].resize(filled[b].size());
    for (std::int64_t t = 0; t < T_new; ++t) {
      std::copy_n(&qkv[(b * S + past[b] + t) * width], width, &last_rows[(b * T_new + t) * width]);
      last_starts[b * T_new + t] = starts[b * S + past[b] + t];
    }
  }
  std::byte* const key_values[2] = {reinterpret_cast<std::byte*>(caches[0].data()),
                                    reinterpret_cast<std::byte*>(caches[1].data())};
  table<T>(level).attention_cached(last, last_rows.data(), key_values, past.data(), last_starts.data(), last_out.data(),
                                   last_lse.data(), workspace.data());
  for (std::int64_t b = 0; b < 2; ++b) {
    EXPECT_TRUE(same_bits(caches[b], filled[b])) << "row " << b;
    for (std::int64_t i = 0; i < T_new * H * D; ++i) {
      ASSERT_NEAR(static_cast<double>(last_out[b * T_new * H * D + i]),
                  static_cast<double>(out[(b * S + past[b]) * H * D + i]), tolerance)
          << to_string(level);
    }
  }
}

TEST(Kernels, AttentionWithACacheIsThatOfTheWholeSequence) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  for (const Level level : levels_here()) {
    expect_attention_of_the_whole_sequence<double>(level, numbers, 1e-12);
    expect_attention_of_the_whole_sequence<float>(level, numbers, 1e-5);
    expect_attention_of_the_whole_sequence<bfloat16>(level, numbers, 0.03);
    expect_attention_of_the_whole_sequence<float16>(level, numbers, 0.004);
  }
}

// A workspace is planned for the longest sequence; the blocks of a shorter one may be larger.
TEST(Kernels, AttentionWorkspaceIsEnoughForShorterSequencesToo) {
  std::int64_t before = 0;
  for (std::int64_t positions = 1; positions < 20'000; ++positions) {
    const std::int64_t bytes = attention_workspace({.T = positions, .D = 64}, DType::f32, true, 1);
    ASSERT_GE(bytes, before) << positions;
    before = bytes;
  }
}

TEST(Kernels, RopeTableHoldsTheAnglesOfThePositions) {
  constexpr std::int64_t D = 6;
  const std::vector<float> frequencies{1.0f, 0.3f, 0.007f};
  std::vector<float> angles(100 * D);
  make_rope_table(100, D, frequencies.data(), 1.5, angles.data());
  for (std::int64_t p = 0; p < 100; ++p) {
    for (std::int64_t i = 0; i < D / 2; ++i) {
      const double angle = static_cast<float>(p) * frequencies[i];
      EXPECT_EQ(angles[p * D + i], static_cast<float>(1.5 * std::cos(angle)));
      EXPECT_EQ(angles[p * D + D / 2 + i], static_cast<float>(1.5 * std::sin(angle)));
    }
  }
}

// What a mask is made of is said in terms of base/random.h: other implementations draw the same.
TEST(Kernels, DropoutIsTheStatedFunctionOfKeyStreamAndElement) {
  constexpr std::int64_t B = 2, n = 1000;
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  const std::vector<std::uint64_t> keys{numbers.seed() * 0x9e3779b97f4a7c15ull, 3};
  const std::uint64_t stream = 0x123456789abcdef0ull;
  for (const double probability : {0.1, 0.5}) {
    for (const Level level : levels_here()) {
      const std::vector<float> ones(B * n, 1.0f);
      std::vector<float> y(B * n);
      table<float>(level).dropout(B, n, {probability, keys.data(), stream}, ones.data(), y.data());
      std::int64_t dropped = 0;
      for (std::int64_t i = 0; i < B * n; ++i) {
        const std::int64_t e = i % n;
        const auto block = random_block(keys[i / n], stream, static_cast<std::uint64_t>(e / 64 * 16 + e % 16));
        const bool drop = block[e / 16 % 4] < probability * 4294967296.0;
        dropped += drop ? 1 : 0;
        ASSERT_EQ(y[i], drop ? 0.0f : static_cast<float>(1 / (1 - probability))) << i << to_string(level);
      }
      EXPECT_NEAR(static_cast<double>(dropped) / (B * n), probability, 0.06);
    }
  }
}

TEST(Kernels, TheSoftCapIsAccurateOverTheWholeRange) {
  std::vector<float> x;
  for (float value = -300.0f; value <= 300.0f; value += 0.037f) x.push_back(value);
  for (const float value : {0.0f, 1e-30f, -1e-6f, 1e30f, -1e30f}) x.push_back(value);
  const auto V = static_cast<std::int64_t>(x.size());
  for (const Level level : levels_here()) {
    std::vector<float> y = x;
    y.push_back(77.0f);
    table<float>(level).soft_cap(1, V, V + 1, 30.0, y.data());
    for (std::int64_t i = 0; i < V; ++i) {
      const double expected = 30.0 * std::tanh(static_cast<double>(x[i]) / 30.0);
      ASSERT_NEAR(y[i], expected, 3e-7 * std::abs(expected)) << x[i] << " at " << to_string(level);
    }
    EXPECT_EQ(y.back(), 77.0f) << "beyond V nothing changes";
  }
}

void choose_level(const char* name) {
  setenv("TRIREME_CPU_LEVEL", name, 1);
  try {
    std::fprintf(stderr, "%s\n", std::string(to_string(level())).c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  std::exit(0);
}

TEST(KernelsDeathTest, TheEnvironmentChoosesTheLevel) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(choose_level("baseline"), ::testing::ExitedWithCode(0), "^baseline");
  EXPECT_EXIT(choose_level("sse9"), ::testing::ExitedWithCode(0), "TR3060.*sse9");
}

}  // namespace
}  // namespace trireme::kernels
