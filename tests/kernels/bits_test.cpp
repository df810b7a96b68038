// Which bits come out does not depend on where a run begins or on the number of compute threads.
#include "kernels/support.h"

namespace trireme::kernels {
namespace {

template <class T>
class Bits : public ::testing::Test {};
using Types = ::testing::Types<float, bfloat16, float16, double>;
TYPED_TEST_SUITE(Bits, Types);

// Runs step(begin, n) over [0, n) in pieces of odd lengths.
template <class Step>
void in_pieces(std::int64_t n, Step step) {
  std::int64_t begin = 0;
  for (std::int64_t length = 1; begin < n; length = length % 41 + 5) {
    const std::int64_t piece = std::min(length, n - begin);
    step(begin, piece);
    begin += piece;
  }
}

TYPED_TEST(Bits, ElementwiseKernelsGiveTheSameAtAnyOffset) {
  using T = TypeParam;
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  constexpr std::int64_t n = 1501;
  const auto a = numbers.normal<T>(n), b = numbers.normal<T>(n);
  const auto f = numbers.normal<float>(n);
  for (const Level level : levels_here()) {
    const Table<T>& k = table<T>(level);
    std::vector<T> sum(n), sum_pieces(n), narrow(n), narrow_pieces(n);
    std::vector<float> total = f, total_pieces = f, wide(n), wide_pieces(n);
    k.add(n, a.data(), b.data(), sum.data());
    k.accumulate(n, a.data(), total.data(), false);
    k.cast_from_float(n, f.data(), narrow.data());
    k.cast_to_float(n, a.data(), wide.data());
    in_pieces(n, [&](std::int64_t i, std::int64_t length) {
      k.add(length, a.data() + i, b.data() + i, sum_pieces.data() + i);
      k.accumulate(length, a.data() + i, total_pieces.data() + i, false);
      k.cast_from_float(length, f.data() + i, narrow_pieces.data() + i);
      k.cast_to_float(length, a.data() + i, wide_pieces.data() + i);
    });
    EXPECT_TRUE(same_bits(sum, sum_pieces)) << to_string(level);
    EXPECT_TRUE(same_bits(total, total_pieces)) << to_string(level);
    EXPECT_TRUE(same_bits(narrow, narrow_pieces)) << to_string(level);
    EXPECT_TRUE(same_bits(wide, wide_pieces)) << to_string(level);
  }
}

TEST(Bits, OptimizersGiveTheSameAtAnyOffset) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  constexpr std::int64_t n = 70001;  // worth three threads, of which the pieces use one
  const Threads threads(3);
  const OptimizerArguments a{1e-3, 0.9, 0.95, 1e-8, 0.1, 0.1, 0.05, 0.8, true};
  const Update update{.gradient_scale = 0.7};
  const auto master = numbers.normal<float>(n), m = numbers.normal<float>(n);
  const auto g = numbers.normal<bfloat16>(n);
  std::vector<float> squares = numbers.normal<float>(n);
  for (float& x : squares) x *= x;
  struct Case {
    OptimizerKernel FlatTable::*kernel;
    const std::vector<float>& first;
    bool has_first;
  };
  for (const Level level : levels_here()) {
    for (const auto& [kernel, first, has_first] : {Case{&FlatTable::adamw, m, true},
                                                   {&FlatTable::adam, m, true},
                                                   {&FlatTable::sgd, m, false},
                                                   {&FlatTable::sgd, m, true},
                                                   {&FlatTable::adagrad, squares, true},
                                                   {&FlatTable::lion, m, true}}) {
      const OptimizerKernel step = flat_table(level).*kernel;
      auto master1 = master, m1 = first, v1 = squares, master2 = master, m2 = first, v2 = squares;
      std::vector<float16> rounded1(n), rounded2(n);
      const auto run = [&, has_first = has_first](std::int64_t i, std::int64_t length, auto& w, auto& first,
                                                  auto& second, auto& rounded) {
        step(a, &update,
             {length, w.data() + i, has_first ? first.data() + i : nullptr, second.data() + i, g.data() + i,
              DType::bf16, rounded.data() + i, DType::f16});
      };
      run(0, n, master1, m1, v1, rounded1);
      in_pieces(n, [&](std::int64_t i, std::int64_t length) { run(i, length, master2, m2, v2, rounded2); });
      EXPECT_FALSE(same_bits(master1, master));
      EXPECT_EQ(same_bits(m1, first), !has_first);
      EXPECT_TRUE(same_bits(master1, master2) && same_bits(m1, m2) && same_bits(v1, v2)) << to_string(level);
      std::vector<float16> expected(n);
      table<float16>(level).cast_from_float(n, master1.data(), expected.data());
      EXPECT_TRUE(same_bits(rounded1, rounded2) && same_bits(rounded1, expected)) << to_string(level);
    }
  }
}

// All results of the kernels at sizes that are worth several threads.
template <class T>
std::vector<std::vector<char>> run_all(const Table<T>& k, unsigned seed) {
  using Acc = typename Table<T>::Acc;
  Numbers numbers(seed);
  std::vector<std::vector<char>> results;
  const auto keep = [&results](const auto& values) {
    const auto* bytes = reinterpret_cast<const char*>(values.data());
    results.emplace_back(bytes, bytes + values.size() * sizeof(values[0]));
  };
  constexpr std::int64_t B = 2, S = 160, N = B * S, H = 4, K = 2, D = 34, C = H * D, V = 500;
  const auto x = numbers.normal<T>(N * C), w = numbers.normal<T>(C), dy = numbers.normal<T>(N * C);
  std::vector<T> y(N * C), dx(N * C), dw(C);
  std::vector<Acc> rstd(N * H), mean(N);
  for (const NormShape& shape : {NormShape{N, C}, NormShape{N, D, H, C, true}}) {
    k.rmsnorm_forward(shape, x.data(), w.data(), 1e-5, y.data(), rstd.data());
    k.rmsnorm_backward(shape, x.data(), w.data(), rstd.data(), dy.data(), nullptr, dx.data(), dw.data(), false,
                       nullptr);
    keep(y), keep(dx), keep(dw);
  }
  auto db = dw;
  k.layernorm_forward(N, C, x.data(), w.data(), x.data(), 1e-5, y.data(), mean.data(), rstd.data());
  k.layernorm_backward(N, C, x.data(), w.data(), nullptr, mean.data(), rstd.data(), dy.data(), nullptr, dx.data(),
                       dw.data(), false, db.data(), false, nullptr);
  keep(y), keep(dx), keep(dw), keep(db);
  const std::vector<std::uint64_t> keys{numbers.seed(), 1};
  const Dropout dropout{0.3, keys.data(), 7};
  k.dropout(B, S * C, dropout, x.data(), y.data());
  keep(y);
  const auto wide = numbers.normal<T>(N * 2 * C);
  std::vector<T> dwide(N * 2 * C);
  for (const Activation activation : {Activation::silu, Activation::gelu_tanh, Activation::gelu, Activation::relu}) {
    k.glu_forward(activation, N, C, wide.data(), y.data());
    k.glu_backward(activation, N, C, wide.data(), dy.data(), dwide.data(), nullptr);
    keep(y), keep(dwide);
    k.activation_forward(activation, N * C, x.data(), y.data());
    k.activation_backward(activation, N * C, x.data(), dy.data(), dx.data(), nullptr);
    keep(y), keep(dx);
  }
  auto qkv = numbers.normal<T>(N * (H + 2 * K) * D);
  std::vector<T> dqkv(qkv.size());
  std::vector<std::int32_t> positions(N), starts(N), ids(N), labels(N);
  for (std::int64_t n = 0; n < N; ++n) {
    positions[n] = static_cast<std::int32_t>(n % S);
    starts[n] = n % S < 70 ? 0 : 70;
    ids[n] = static_cast<std::int32_t>(numbers.below(V / 4));
    labels[n] = static_cast<std::int32_t>(numbers.below(V + 50)) - 50;
  }
  std::vector<float> angles(S * D);
  const std::vector<float> frequencies(D / 2, 0.1f);
  make_rope_table(S, D, frequencies.data(), 1, angles.data());
  k.rope(N, H + K, D, (H + 2 * K) * D, qkv.data(), positions.data(), angles.data(), 1);
  keep(qkv);
  std::vector<Acc> lse(B * H * S);
  std::vector<char> workspace(attention_workspace({.T = S, .D = D}, dtype_of<T>, true, num_threads()));
  for (const double soft_cap : {0.0, 1.5}) {
    for (const Dropout& dropped : {Dropout{}, dropout}) {
      const AttentionShape shape{B, S, H, K, D, 0.2, soft_cap};
      k.attention_forward(shape, dropped, qkv.data(), starts.data(), y.data(), lse.data(), workspace.data());
      k.attention_backward(shape, dropped, qkv.data(), starts.data(), y.data(), lse.data(), dy.data(), dqkv.data(),
                           workspace.data());
      keep(y), keep(lse), keep(dqkv);
    }
  }
  std::vector<T> table_gradient(V * C);
  workspace.resize(embedding_workspace(N, V, C));
  k.embedding_backward(N, C, V, ids.data(), dy.data(), table_gradient.data(), false, workspace.data());
  keep(table_gradient);
  auto logits = numbers.normal<T>(N * (V + 12), 5.0);
  double evaluated = 0, loss = 0;
  k.cross_entropy_loss(N, V, V + 12, logits.data(), labels.data(), &evaluated);
  k.cross_entropy(N, V, V + 12, 0, logits.data(), labels.data(), 0.1, &loss);
  keep(std::vector<double>{evaluated, loss}), keep(logits);
  return results;
}

TYPED_TEST(Bits, KernelsGiveTheSameOnAnyNumberOfThreads) {
  using T = TypeParam;
  const unsigned seed = testing::test_seed();
  SCOPED_TRACE(seed);
  for (const Level level : levels_here()) {
    std::vector<std::vector<char>> alone;
    for (const int threads : {1, 2, 3}) {
      const Threads set(threads);
      auto results = run_all(table<T>(level), seed);
      if (threads == 1) alone = results;
      for (std::size_t i = 0; i < results.size(); ++i) {
        EXPECT_TRUE(results[i] == alone[i]) << "result " << i << ", " << threads << " threads, " << to_string(level);
      }
    }
  }
}

TEST(Bits, SumOfSquaresIsTheSameOnAnyNumberOfThreadsAndAtEveryLevel) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  const auto x = numbers.normal<float>(1'200'007);
  double exact = 0;
  for (const float value : x) exact += static_cast<double>(value) * value;
  std::vector<bfloat16> narrow;
  std::vector<float> widened;
  for (const float value : x) widened.push_back(narrow.emplace_back(value));
  const double first = sum_of_squares(flat_table(Level::baseline), x);
  const double first_narrow = sum_of_squares(flat_table(Level::baseline), widened);
  EXPECT_NEAR(first, exact, 1e-12 * exact);
  for (const Level level : levels_here()) {
    for (const int threads : {1, 2, 3}) {
      const Threads set(threads);
      EXPECT_EQ(sum_of_squares(flat_table(level), x), first) << to_string(level) << threads;
      EXPECT_EQ(sum_of_squares(flat_table(level), narrow), first_narrow) << to_string(level) << threads;
    }
  }
}

}  // namespace
}  // namespace trireme::kernels
