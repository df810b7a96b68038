// What units read of a batch is in the memory that they run on, and stays when the loader's own is gone.
#include "engine/batch_arrays.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace trireme::engine {
namespace {

// Arrays of a batch, each of other numbers.
struct Loaded {
  explicit Loaded(const BatchShape& given, int units)
      : shape(given), caches(static_cast<std::size_t>(units * given.batch)), keys(given.batch) {
    const auto N = static_cast<std::size_t>(shape.tokens());
    for (auto* array : {&ids, &labels, &positions, &starts}) array->resize(N);
    past.resize(static_cast<std::size_t>(shape.batch));
    std::int32_t first = 1;
    for (auto* array : {&ids, &labels, &positions, &starts, &past}) {
      std::iota(array->begin(), array->end(), first);
      first += 1000;
    }
    std::iota(keys.begin(), keys.end(), std::uint64_t{1} << 40);
    for (std::size_t i = 0; i < caches.size(); ++i) caches[i] = somewhere + i;
  }
  Batch batch() const {
    return {.shape = shape,
            .ids = ids.data(),
            .labels = labels.data(),
            .positions = positions.data(),
            .starts = starts.data(),
            .dropout_keys = keys.data(),
            .past = past.data(),
            .caches = caches.data()};
  }
  void expect_in(const Batch& there) const {
    const auto expect = [](const auto& expected, const auto* found) {
      EXPECT_NE(found, expected.data());
      EXPECT_EQ(std::vector(found, found + expected.size()), expected);
    };
    expect(ids, there.ids);
    expect(labels, there.labels);
    expect(positions, there.positions);
    expect(starts, there.starts);
    expect(keys, there.dropout_keys);
    expect(past, there.past);
    expect(caches, there.caches);
  }

  BatchShape shape;
  std::vector<std::int32_t> ids, labels, positions, starts, past;
  std::vector<std::byte*> caches;
  std::vector<std::uint64_t> keys;
  std::byte somewhere[64] = {};
};

TEST(BatchArrays, HoldWhatTheBatchesHad) {
  constexpr int kUnits = 3;
  const BatchArrays arrays({4, 70}, 2, kUnits, MemoryKind::host);
  const Loaded first({4, 70}, kUnits), second({1, 200}, kUnits);  // the largest, and one of fewer, longer rows
  const Batch first_batch = first.batch(), second_batch = second.batch();
  const Batch there = arrays.upload(first_batch, 0), other = arrays.upload(second_batch, 1);
  first.expect_in(there);
  second.expect_in(other);
  EXPECT_EQ(&there.on_host(), &first_batch);
  EXPECT_EQ(other.shape.sequence, 200);
}

TEST(BatchArrays, LeaveOutWhatABatchHasNot) {
  const BatchArrays arrays({2, 8}, 1, 0, MemoryKind::host);
  const Loaded loaded({2, 8}, 0);
  Batch batch = loaded.batch();
  batch.labels = nullptr;
  batch.dropout_keys = nullptr;
  batch.past = nullptr;
  batch.caches = nullptr;
  const Batch there = arrays.upload(batch, 0);
  EXPECT_EQ(there.labels, nullptr);
  EXPECT_EQ(there.dropout_keys, nullptr);
  EXPECT_EQ(there.past, nullptr);
  EXPECT_EQ(there.caches, nullptr);
  EXPECT_EQ(std::vector(there.starts, there.starts + 16), loaded.starts);
}

}  // namespace
}  // namespace trireme::engine
