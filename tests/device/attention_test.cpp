// Attention on a device beside that of the CPU in double.
#include <limits>

#include "device/support.h"

namespace trireme::kernels {
namespace {

class DeviceAttention : public OnDevice {};

enum class Starts { none, zero, documents, long_documents, window };  // none: a null pointer

std::vector<std::int32_t> starts_of(Starts kind, std::int64_t B, std::int64_t T) {
  std::vector<std::int32_t> starts(B * T);
  for (std::int64_t n = 0; n < B * T; ++n) {
    const std::int64_t t = n % T, document = (kind == Starts::documents ? 37 : 290) + n / T;
    const std::int64_t start = kind <= Starts::zero ? 0 : kind == Starts::window ? t - 20 : t / document * document;
    starts[n] = static_cast<std::int32_t>(std::max<std::int64_t>(start, 0));
  }
  return starts;
}

template <class T>
std::vector<T> shifted(const std::vector<T>& values, std::int64_t offset) {
  std::vector<T> moved(offset, T(1.0f));
  moved.insert(moved.end(), values.begin(), values.end());
  return moved;
}
template <class T>
std::vector<T> behind(const std::vector<T>& values, std::int64_t offset) {
  return {values.begin() + offset, values.end()};
}

// Every element on its own and not the norm alone: an error in few of many would hide there.
template <class T, class U>
void expect_close(const std::vector<T>& found, const std::vector<U>& expected, double tolerance) {
  EXPECT_LE(relative_error(found, expected), tolerance);
  double largest = 0;
  for (const U& value : expected) largest = std::max(largest, std::abs(static_cast<double>(value)));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(found[i]), static_cast<double>(expected[i]), 4 * tolerance * largest) << i;
  }
}

template <class T>
struct Case {
  AttentionShape shape;
  std::int64_t rows, out_size, lse_size;
  double probability;
  std::vector<std::uint64_t> keys;
  bool has_starts;
  std::vector<std::int32_t> starts;
  std::vector<T> qkv, dout;

  Case(const AttentionShape& s, Starts kind, double dropped, Numbers& numbers)
      : shape(s),
        rows(s.B * s.T),
        out_size(rows * s.H * s.D),
        lse_size(rows * s.H),
        probability(dropped),
        has_starts(kind != Starts::none),
        starts(starts_of(kind, s.B, s.T)),
        qkv(numbers.normal<T>(rows * s.qkv_width())),
        dout(numbers.normal<T>(out_size)) {
    for (std::int64_t b = 0; b < s.B; ++b) keys.push_back(0x9e3779b97f4a7c15ull * numbers.seed() + b);
  }
  Dropout dropout(const std::uint64_t* where) const { return {probability, where, 77}; }
};

template <class T>
struct Result {
  std::vector<T> out, dqkv;
  std::vector<typename AccumulatorOf<T>::type> lse;
};

template <class T>
Result<double> on_cpu(const Case<T>& c) {
  const OnHost on_host;  // the CPU's attention has matrix products
  const Table<double>& k = table<double>(level());
  const std::vector<double> qkv(c.qkv.begin(), c.qkv.end()), dout(c.dout.begin(), c.dout.end());
  Result<double> result{std::vector<double>(c.out_size), std::vector<double>(qkv.size()),
                        std::vector<double>(c.lse_size)};
  const Dropout dropout = c.dropout(c.keys.data());
  std::vector<char> workspace(attention_workspace(c.shape, DType::f64, true, num_threads()));
  k.attention_forward(c.shape, dropout, qkv.data(), c.starts.data(), result.out.data(), result.lse.data(),
                      workspace.data());
  k.attention_backward(c.shape, dropout, qkv.data(), c.starts.data(), result.out.data(), result.lse.data(), dout.data(),
                       result.dqkv.data(), workspace.data());
  return result;
}

template <class T>
Result<T> on_device(const Case<T>& c, std::int64_t offset) {
  const DeviceArray<T> qkv(shifted(c.qkv, offset)), dout(shifted(c.dout, offset));
  const DeviceArray<T> out(c.out_size + offset), dqkv(std::ssize(c.qkv) + offset);
  const DeviceArray<float> lse(c.lse_size);
  const DeviceArray<std::uint64_t> keys(c.keys);
  const DeviceArray<std::int32_t> given(c.starts);
  const std::int32_t* starts = c.has_starts ? given.data() : nullptr;
  const Dropout dropout = c.dropout(keys.data());
  const DeviceArray<char> workspace(std::max(attention_workspace(c.shape, dtype_of<T>, false, 1),
                                             attention_workspace(c.shape, dtype_of<T>, true, 1)));
  table<T>().attention_forward(c.shape, dropout, qkv + offset, starts, out + offset, lse, workspace);
  table<T>().attention_backward(c.shape, dropout, qkv + offset, starts, out + offset, lse, dout + offset, dqkv + offset,
                                workspace);
  return {behind(out.host(), offset), behind(dqkv.host(), offset), lse.host()};
}

template <class T>
void compare(const AttentionShape& s, Starts kind, double dropped, Numbers& numbers) {
  SCOPED_TRACE(::testing::Message() << s.B << " x " << s.T << ", heads " << s.H << "/" << s.K << " of " << s.D
                                    << ", cap " << s.soft_cap << ", starts " << static_cast<int>(kind) << ", dropped "
                                    << dropped);
  const Case<T> c(s, kind, dropped, numbers);
  const Result<double> expected = on_cpu(c);
  const Result<T> found = on_device(c, 0);
  expect_close(found.out, expected.out, kTolerance<T>);
  expect_close(found.lse, expected.lse, 2e-6);
  expect_close(found.dqkv, expected.dqkv, 2 * kTolerance<T>);    // the forward's rounded out is in it
  for (const std::int64_t offset : {0, c.has_starts ? 1 : 0}) {  // without starts, memory is that of a plan: aligned
    if (brief() && offset == 0) continue;
    const Result<T> again = on_device(c, offset);
    EXPECT_TRUE(same_bits(again.out, found.out)) << offset;
    EXPECT_TRUE(same_bits(again.lse, found.lse)) << offset;
    EXPECT_TRUE(same_bits(again.dqkv, found.dqkv)) << offset;
  }
}

template <class T>
void compare_attention(Numbers& numbers) {
  for (const std::int64_t T_ : all_or_brief({1, 63, 64, 65, 200}, {65})) {
    compare<T>({2, T_, 4, 2, 64, 0.125}, Starts::zero, 0, numbers);
  }
  for (const std::int64_t D : {2, 24, 80, 128, 192, 256}) {
    const double scale = 1 / std::sqrt(static_cast<double>(D));
    compare<T>({1, 150, 3, 1, D, scale}, Starts::documents, 0, numbers);
    compare<T>({1, 150, 2, 2, D, scale, 2.0}, Starts::window, 0.3, numbers);
  }
  for (const std::int64_t T_ : all_or_brief({1, 31, 32, 33, 127, 128, 129, 300}, {129})) {
    for (const std::int64_t D : {64, 80, 96, 128}) {
      const double scale = 1 / std::sqrt(static_cast<double>(D));
      compare<T>({2, T_, 4, 1, D, scale}, Starts::documents, 0, numbers);
    }
  }
  for (const std::int64_t D : {64, 96, 128}) {  // over many tiles
    const double scale = 1 / std::sqrt(static_cast<double>(D));
    const std::int64_t T_ = brief() ? 300 : 700;
    compare<T>({1, T_, 4, 2, D, scale}, Starts::long_documents, 0, numbers);
    compare<T>({1, T_, 4, 2, D, scale, 3.0}, Starts::long_documents, 0.2, numbers);
    if (brief()) continue;
    compare<T>({1, 520, 2, 1, D, scale}, Starts::zero, 0, numbers);
  }
  compare<T>({3, 131, 6, 3, 40, 0.2, 5.0}, Starts::documents, 0, numbers);
  compare<T>({3, 131, 6, 3, 40, 0.2}, Starts::window, 0, numbers);
  compare<T>({2, 193, 4, 1, 64, 0.125}, Starts::zero, 0.1, numbers);
}

TEST_F(DeviceAttention, HasTheOutputsAndGradientsOfTheFormulaInFp32) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  compare_attention<float>(numbers);
}
TEST_F(DeviceAttention, HasTheOutputsAndGradientsOfTheFormulaInBf16) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  compare_attention<bfloat16>(numbers);
}
TEST_F(DeviceAttention, HasTheOutputsAndGradientsOfTheFormulaInFp16) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  compare_attention<float16>(numbers);
}

// By cuDNN, which rounds the weights to 16 bits before they meet the values.
TEST_F(DeviceAttention, OfWholeSequencesIsThatOfTheFormula) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  for (const std::int64_t D : {64, 128}) {
    for (const std::int64_t T : {64, 200, 512}) {
      const AttentionShape shape{2, T, 4, 2, D, 1 / std::sqrt(static_cast<double>(D))};
      compare<bfloat16>(shape, Starts::none, 0, numbers);
      compare<float16>(shape, Starts::none, 0, numbers);
    }
  }
  compare<float>({2, 130, 4, 2, 64, 0.125}, Starts::none, 0, numbers);
}

// Keys that no query of a block may see are not read: NaN there stays there.
template <class T>
void expect_skips() {
  constexpr std::int64_t S = 192, D = 8;
  const T nan(std::numeric_limits<float>::quiet_NaN());
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  auto qkv = numbers.normal<T>(S * 3 * D);
  for (std::int64_t t = 0; t < 40; ++t) qkv[t * 3 * D + D] = nan;
  for (std::int64_t t = 128; t < S; ++t) qkv[t * 3 * D + 2 * D] = nan;
  std::vector<std::int32_t> starts(S);
  for (std::int64_t t = 64; t < S; ++t) starts[t] = 40;
  const DeviceArray<T> on_qkv(qkv), out(S * D);
  const DeviceArray<float> lse(S);
  const DeviceArray<std::int32_t> on_starts(starts);
  table<T>().attention_forward({1, S, 1, 1, D, 0.3}, {}, on_qkv, on_starts, out, lse, nullptr);
  const auto found = out.host();
  for (std::int64_t t = 0; t < S; ++t) {
    EXPECT_EQ(std::isnan(static_cast<float>(found[t * D])), t < 64 || t >= 128) << t;
  }
}
TEST_F(DeviceAttention, SkipsWhatNoQueryOfABlockSees) {
  expect_skips<float>();
  expect_skips<bfloat16>();
}

// Sequences of other lengths, whose last rows find the keys and values before them in caches.
template <class T>
void compare_cached(std::int64_t new_rows, std::int64_t D, Numbers& numbers) {
  SCOPED_TRACE(::testing::Message() << new_rows << " rows of heads of " << D);
  constexpr std::int64_t S = 150, K = 2, H = 6;
  const AttentionShape whole{2, S, H, K, D, 0.2, 5.0}, last{2, new_rows, H, K, D, 0.2, 5.0, S - new_rows};
  const Case<T> c(whole, Starts::window, 0, numbers);
  const Result<T> all = on_device(c, 0);
  const std::vector<std::int32_t> past{static_cast<std::int32_t>(S - new_rows), 17};
  const std::int64_t width = whole.qkv_width(), kept = 2 * K * D, wide = H * D;
  const T nan(std::numeric_limits<float>::quiet_NaN());
  std::vector<T> caches[2], filled[2], rows, expected;
  std::vector<std::int32_t> starts;
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t t = 0; t < past[b] + new_rows; ++t) {
      const T* row = &c.qkv[(b * S + t) * width];
      filled[b].insert(filled[b].end(), row + wide, row + wide + kept);
      if (t < past[b]) continue;
      rows.insert(rows.end(), row, row + width);
      starts.push_back(c.starts[b * S + t]);
      expected.insert(expected.end(), &all.out[(b * S + t) * wide], &all.out[(b * S + t) * wide] + wide);
    }
    caches[b].assign(filled[b].begin(), filled[b].begin() + past[b] * kept);
    caches[b].resize(filled[b].size() + kept, nan);  // a position more, which stays as it is
    filled[b].resize(caches[b].size(), nan);
  }
  const DeviceArray<T> first(caches[0]), second(caches[1]), out(2 * new_rows * wide);
  const DeviceArray<std::byte*> key_values(
      std::vector<std::byte*>{reinterpret_cast<std::byte*>(first.data()), reinterpret_cast<std::byte*>(second.data())});
  const DeviceArray<float> lse(2 * H * new_rows);
  const DeviceArray<T> on_rows(rows);
  const DeviceArray<std::int32_t> on_past(past), on_starts(starts);
  table<T>().attention_cached(last, on_rows, key_values, on_past, on_starts, out, lse, nullptr);
  expect_close(out.host(), expected, kTolerance<T>);
  for (const float value : lse.host()) ASSERT_FALSE(std::isnan(value));
  EXPECT_TRUE(same_bits(first.host(), filled[0]));
  EXPECT_TRUE(same_bits(second.host(), filled[1]));
}

TEST_F(DeviceAttention, WithACacheIsThatOfTheWholeSequence) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  for (const std::int64_t new_rows : {1, 40, 70}) {
    for (const std::int64_t D : {20, 64, 128}) {
      compare_cached<float>(new_rows, D, numbers);
      compare_cached<bfloat16>(new_rows, D, numbers);
      compare_cached<float16>(new_rows, D, numbers);
    }
  }
}

}  // namespace
}  // namespace trireme::kernels
