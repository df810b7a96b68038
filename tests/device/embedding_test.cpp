// Embeddings on a device: rows as they lie in the table, gradients with the bits of the CPU's where an id has no more
// rows than a section.
#include <algorithm>
#include <map>

#include "device/support.h"

namespace trireme::kernels {
namespace {

class DeviceEmbedding : public OnDevice {};

std::vector<std::int32_t> random_ids(std::int64_t N, std::int64_t V, Numbers& numbers) {
  std::vector<std::int32_t> ids(N);
  for (std::int32_t& id : ids) id = static_cast<std::int32_t>(numbers.below(4) == 0 ? V / 2 : numbers.below(V));
  return ids;
}

template <class T>
void compare_forward(std::int64_t N, std::int64_t C, std::int64_t V, std::int64_t offset, Numbers& numbers) {
  SCOPED_TRACE(::testing::Message() << N << " of " << V << " rows of " << C << " from " << offset);
  const auto ids = random_ids(N, V, numbers);
  const auto w = numbers.normal<T>(V * C + offset);
  const DeviceArray<T> on_w(w), y(N * C);
  const DeviceArray<std::int32_t> on_ids(ids);
  table<T>().embedding_forward(N, C, on_ids, on_w + offset, y);
  const auto found = y.host();
  for (std::int64_t i = 0; i < N * C; ++i) {
    ASSERT_EQ(static_cast<float>(found[i]), static_cast<float>(w[offset + ids[i / C] * C + i % C])) << i;
  }
}

constexpr std::int64_t kSection = 128;

// What kernels.h promises: sections of an id's rows, each in order, then their sums, rounded once.
template <class T, class G>
std::vector<G> sums_of_sections(std::int64_t C, const std::vector<std::int32_t>& ids, const T* dy, std::vector<G> dw,
                                bool add) {
  std::map<std::int32_t, std::vector<std::int64_t>> rows;
  for (std::size_t n = 0; n < ids.size(); ++n) rows[ids[n]].push_back(static_cast<std::int64_t>(n));
  if (!add) std::fill(dw.begin(), dw.end(), G(0.0f));
  for (const auto& [id, mine] : rows) {
    for (std::int64_t c = 0; c < C; ++c) {
      float sum = 0;
      for (std::size_t first = 0; first < mine.size(); first += kSection) {
        float section = 0;
        for (std::size_t i = first; i < std::min(first + kSection, mine.size()); ++i) section += dy[mine[i] * C + c];
        sum += section;
      }
      if (add) sum += dw[id * C + c];
      dw[id * C + c] = G(sum);
    }
  }
  return dw;
}

template <class T, class G>
auto backward_of(const Table<T>& table) {
  if constexpr (std::is_same_v<T, G>) return table.embedding_backward;
  if constexpr (!std::is_same_v<T, G>) return table.embedding_backward_unrounded;
}

// G: of the gradient.
template <class T, class G = T>
void compare_backward(std::int64_t N, std::int64_t C, std::int64_t V, std::int64_t offset, bool add, Numbers& numbers) {
  SCOPED_TRACE(::testing::Message() << N << " of " << V << " rows of " << C << " from " << offset
                                    << (add ? ", added" : ""));
  const auto ids = random_ids(N, V, numbers);
  std::map<std::int32_t, std::int64_t> counts;
  std::int64_t most = 0;
  for (const std::int32_t id : ids) most = std::max(most, ++counts[id]);
  const auto dy = numbers.normal<T>(N * C + offset);
  const auto before = numbers.normal<G>(V * C + offset);
  const DeviceArray<T> on_dy(dy);
  const DeviceArray<G> dw(add ? before : std::vector<G>(before.size(), G(std::nanf("")))), again(before);
  const DeviceArray<std::int32_t> on_ids(ids);
  const DeviceArray<std::uint8_t> workspace(embedding_workspace(N, V, C));
  backward_of<T, G>(table<T>())(N, C, V, on_ids, on_dy + offset, dw + offset, add, workspace);
  auto expected = before;
  if (most <= kSection) {
    std::vector<char> memory(embedding_workspace(N, V, C));
    backward_of<T, G>(table<T>(level()))(N, C, V, ids.data(), dy.data() + offset, expected.data() + offset, add,
                                         memory.data());
  } else {
    const auto sums = sums_of_sections<T, G>(C, ids, dy.data() + offset, {before.begin() + offset, before.end()}, add);
    std::copy(sums.begin(), sums.end(), expected.begin() + offset);
  }
  auto found = dw.host();
  for (std::int64_t i = 0; i < offset; ++i) found[i] = before[i];
  EXPECT_TRUE(same_bits(found, expected));
  backward_of<T, G>(table<T>())(N, C, V, on_ids, on_dy + offset, again + offset, add, workspace);
  EXPECT_TRUE(same_bits(again.host(), expected));
}

template <class T>
void compare_embedding(Numbers& numbers) {
  for (const std::int64_t C : {1, 8, 19, 64, 1032}) {
    for (const std::int64_t offset : {0, 1}) {
      compare_forward<T>(100, C, 30, offset, numbers);
      for (const bool add : {false, true}) {
        compare_backward<T>(1, C, 1, offset, add, numbers);
        compare_backward<T>(100, C, 30, offset, add, numbers);
        compare_backward<T>(1'000, C, 70'000 / C, offset, add, numbers);  // one id has several sections
        if (sizeof(T) == 2) compare_backward<T, float>(1'000, C, 70'000 / C, offset, add, numbers);
      }
    }
  }
}

TEST_F(DeviceEmbedding, RowsAndGradientsAreThoseOfTheCpu) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  compare_embedding<float>(numbers);
  compare_embedding<bfloat16>(numbers);
  compare_embedding<float16>(numbers);
}

TEST_F(DeviceEmbedding, IdsWithManyRowsAreSumsOfSections) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  for (const std::int64_t N : {kSection, kSection + 1, 2 * kSection, std::int64_t{20'011}}) {
    for (const std::int64_t V : {1, 2, 7, 50, 1024}) {
      for (const bool add : {false, true}) {
        compare_backward<bfloat16>(N, 24, V, 0, add, numbers);
        compare_backward<bfloat16, float>(N, 24, V, 0, add, numbers);
      }
    }
  }
}

TEST_F(DeviceEmbedding, ATrainingStepsPositionsFit) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  compare_backward<bfloat16>(300'000, 8, 128'256, 0, false, numbers);
}

}  // namespace
}  // namespace trireme::kernels
