// Embeddings on a device: rows as they lie in the table, gradients with the bits of the CPU's.
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

template <class T>
void compare_backward(std::int64_t N, std::int64_t C, std::int64_t V, std::int64_t offset, bool add, Numbers& numbers) {
  SCOPED_TRACE(::testing::Message() << N << " of " << V << " rows of " << C << " from " << offset
                                    << (add ? ", added" : ""));
  const auto ids = random_ids(N, V, numbers);
  const auto dy = numbers.normal<T>(N * C + offset), before = numbers.normal<T>(V * C + offset);
  const DeviceArray<T> on_dy(dy), dw(add ? before : std::vector<T>(before.size(), T(std::nanf("")))), again(before);
  const DeviceArray<std::int32_t> on_ids(ids);
  const DeviceArray<std::uint8_t> workspace(embedding_workspace(N, V, C));
  table<T>().embedding_backward(N, C, V, on_ids, on_dy + offset, dw + offset, add, workspace);
  auto expected = before;
  std::vector<char> memory(embedding_workspace(N, V, C));
  table<T>(level()).embedding_backward(N, C, V, ids.data(), dy.data() + offset, expected.data() + offset, add,
                                       memory.data());
  auto found = dw.host();
  for (std::int64_t i = 0; i < offset; ++i) found[i] = before[i];
  EXPECT_TRUE(same_bits(found, expected));
  table<T>().embedding_backward(N, C, V, on_ids, on_dy + offset, again + offset, add, workspace);
  EXPECT_TRUE(same_bits(again.host(), expected));
}

template <class T>
void compare_all(Numbers& numbers) {
  for (const std::int64_t C : {1, 8, 19, 64, 1032}) {
    for (const std::int64_t offset : {0, 1}) {
      compare_forward<T>(100, C, 30, offset, numbers);
      for (const bool add : {false, true}) {
        compare_backward<T>(1, C, 1, offset, add, numbers);
        compare_backward<T>(100, C, 30, offset, add, numbers);
        compare_backward<T>(1'000, C, 70'000 / C, offset, add, numbers);  // one run is longer than a block has threads
      }
    }
  }
}

TEST_F(DeviceEmbedding, RowsAndGradientsAreThoseOfTheCpu) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  compare_all<float>(numbers);
  compare_all<bfloat16>(numbers);
  compare_all<float16>(numbers);
}

TEST_F(DeviceEmbedding, ATrainingStepsPositionsFit) {
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  compare_backward<bfloat16>(300'000, 8, 128'256, 0, false, numbers);
}

}  // namespace
}  // namespace trireme::kernels
