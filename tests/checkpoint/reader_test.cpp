// Checkpoints as later layouts write them: several files, tensors cut into boxes and flat ranges.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"
#include "layout/storage_group.h"
#include "support/expect_error.h"
#include "support/seed.h"
#include "support/temporary_folder.h"

namespace trireme::checkpoint::testing {
namespace {

namespace fs = std::filesystem;
using trireme::testing::expect_error;
using trireme::testing::TemporaryFolder;

// Merged QKV above each other, a padded matrix whose logical tensors lie side by side, and a vector.
std::vector<ParameterSpec> parameters() {
  return {
      {.name = "qkv",
       .rows = 30,
       .columns = 17,
       .logical = {{"q", {12, 17}, {0, 12, 0, 17}}, {"k", {9, 17}, {12, 21, 0, 17}}, {"v", {9, 17}, {21, 30, 0, 17}}}},
      {.name = "side",
       .rows = 20,
       .columns = 40,
       .logical = {{"left", {18, 11}, {0, 18, 0, 11}}, {"right", {18, 25}, {0, 18, 13, 38}}}},
      {.name = "norm", .columns = 300, .logical = {{"norm", {300}, {0, 1, 0, 300}}}}};
}

StorageGroup group_of(const std::vector<ParameterSpec>& list, int num_slices) {
  const std::vector<std::vector<int>> units{{0, 1, 2}};
  const std::vector<std::string> names{"unit"};
  return make_groups(list, units, names, num_slices).at(0);
}

// The value of flat element i of the group's padded storage; padding holds what must never be read.
std::vector<float> storage_values(const StorageGroup& group, const std::vector<ParameterSpec>& list) {
  std::vector<float> values(static_cast<std::size_t>(group.numel), -7);
  float next = 1;
  for (const Piece& piece : locate(group, list, 0, group.numel)) {
    for (std::int64_t row = 0; row < piece.box.rows(); ++row) {
      for (std::int64_t column = 0; column < piece.box.columns(); ++column) {
        values[static_cast<std::size_t>(piece.flat_begin + row * piece.flat_row_stride + column)] = next++;
      }
    }
  }
  return values;
}

// Every slice's pieces, packed one behind the other, as one tensor "slice" in a file of its own.
void save_slices(const fs::path& folder, int num_slices) {
  const auto list = parameters();
  const StorageGroup group = group_of(list, num_slices);
  const std::vector<float> values = storage_values(group, list);
  Manifest manifest{.run_id = "run", .attempt = 1, .step = 5, .num_micro_batches = 1, .micro_batch_size = 1};
  std::map<std::string, LogicalState> states;
  for (int slice = 0; slice < num_slices; ++slice) {
    const std::string file = "state-a1-rank" + std::to_string(slice) + ".safetensors";
    std::vector<float> packed;
    for (const Piece& piece : locate(group, list, slice * group.slice_numel(), (slice + 1) * group.slice_numel())) {
      const auto& logical =
          list[static_cast<std::size_t>(piece.parameter)].logical[static_cast<std::size_t>(piece.logical)];
      LogicalState& state = states[logical.name];
      state.name = logical.name;
      state.shape = logical.shape;
      state.entries.push_back({file, "slice", piece.box.row_begin, piece.box.row_end, piece.box.column_begin,
                               piece.box.column_end, static_cast<std::int64_t>(packed.size())});
      for (std::int64_t row = 0; row < piece.box.rows(); ++row) {
        const float* begin = values.data() + piece.flat_begin + row * piece.flat_row_stride;
        packed.insert(packed.end(), begin, begin + piece.box.columns());
      }
    }
    const auto written = write_safetensors(
        folder / file,
        std::vector<TensorToWrite>{
            {"slice", {DType::f32, {static_cast<std::int64_t>(packed.size())}, std::as_bytes(std::span(packed))}}},
        {});
    manifest.files[file] = {written.bytes, written.block_digests};
  }
  for (auto& [name, state] : states) manifest.tensors.push_back(std::move(state));
  write_file_atomic(folder / "manifest.json", to_json_text(manifest));
}

// What a rank of another layout does: fills its slice from the checkpoint by the same index function.
std::vector<float> load_slices(const fs::path& folder, int num_slices) {
  const auto list = parameters();
  const StorageGroup group = group_of(list, num_slices);
  const Reader reader(folder);
  std::vector<float> values(static_cast<std::size_t>(group.numel), -7);
  for (int slice = 0; slice < num_slices; ++slice) {
    for (const Piece& piece : locate(group, list, slice * group.slice_numel(), (slice + 1) * group.slice_numel())) {
      const auto& logical =
          list[static_cast<std::size_t>(piece.parameter)].logical[static_cast<std::size_t>(piece.logical)];
      reader.read(logical.name, logical.shape, piece.box.row_begin, piece.box.row_end, piece.box.column_begin,
                  piece.box.column_end, values.data() + piece.flat_begin, piece.flat_row_stride);
    }
  }
  return values;
}

TEST(Reader, LoadsAnyNumberOfSlicesFromAnyOther) {
  for (const int saved : {1, 2, 3, 5}) {
    const TemporaryFolder folder;
    save_slices(folder.path(), saved);
    for (const int loaded : {1, 2, 4, 7}) {
      const auto list = parameters();
      EXPECT_EQ(load_slices(folder.path(), loaded), storage_values(group_of(list, loaded), list))
          << "saved by " << saved << ", loaded by " << loaded;
    }
  }
}

TEST(Reader, ReadsAnyBoxAcrossEntries) {
  const unsigned seed = trireme::testing::test_seed();
  SCOPED_TRACE("TRIREME_TEST_SEED=" + std::to_string(seed));
  std::mt19937 random(seed);
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  const TemporaryFolder folder;
  save_slices(folder.path(), 5);
  const Reader reader(folder.path());
  std::vector<float> whole(18 * 25);
  reader.read("right", {18, 25}, 0, 18, 0, 25, whole.data(), 25);
  for (int round = 0; round < 200; ++round) {
    const std::int64_t row = pick(0, 18), row_end = pick(row, 18), column = pick(0, 25), column_end = pick(column, 25);
    const std::int64_t stride = column_end - column + pick(0, 3);
    std::vector<float> part(static_cast<std::size_t>((row_end - row) * stride + 1), -1);
    reader.read("right", {18, 25}, row, row_end, column, column_end, part.data(), stride);
    for (std::int64_t r = row; r < row_end; ++r) {
      for (std::int64_t c = column; c < column_end; ++c) {
        ASSERT_EQ(part[static_cast<std::size_t>((r - row) * stride + c - column)],
                  whole[static_cast<std::size_t>(r * 25 + c)]);
      }
    }
  }
}

TEST(Reader, RefusesEntriesThatTheirFileDoesNotHold) {
  const TemporaryFolder folder;
  const std::vector<float> values(8, 1);
  const auto written =
      write_safetensors(folder.path() / "f.safetensors",
                        std::vector<TensorToWrite>{{"a", {DType::f32, {4}, std::as_bytes(std::span(values).first(4))}},
                                                   {"b", {DType::i32, {4}, std::as_bytes(std::span(values).first(4))}}},
                        {});
  const auto refuses = [&](const std::string& stored, std::int64_t flat_begin) {
    Manifest manifest{.run_id = "run", .num_micro_batches = 1, .micro_batch_size = 1};
    manifest.files["f.safetensors"] = {written.bytes, written.block_digests};
    manifest.tensors = {{"t", DType::f32, {2}, {{"f.safetensors", stored, 0, 1, 0, 2, flat_begin}}}};
    write_file_atomic(folder.path() / "manifest.json", to_json_text(manifest));
    expect_error(5044, [&] { Reader reader(folder.path()); });
  };
  refuses("missing", 0);
  refuses("b", 0);
  refuses("a", 3);
}

TEST(Reader, GivesSixteenBitsAsFloatsAndRefusesIntegers) {
  const TemporaryFolder folder;
  const std::vector<std::uint16_t> values{0x3f80, 0x4000, 0xbf80, 0x3e80};  // of 2 rows of 2 columns
  const std::vector<std::int32_t> integers(4, 1);
  const std::vector<NamedData> tensors{{"w", DType::bf16, {2, 2}, std::as_bytes(std::span(values))},
                                       {"h", DType::f16, {4}, std::as_bytes(std::span(values))},
                                       {"i", DType::i32, {4}, std::as_bytes(std::span(integers))}};
  const fs::path saved =
      save(folder.path(), {.attempt = 1, .step = 1, .num_micro_batches = 1, .micro_batch_size = 1}, tensors);
  const Reader reader(saved);
  float out[4] = {};
  reader.read("w", {2, 2}, 0, 2, 1, 2, out, 3);
  EXPECT_EQ(out[0], 2.0f);
  EXPECT_EQ(out[1], 0.0f);
  EXPECT_EQ(out[3], 0.25f);
  reader.read("h", {4}, 0, 1, 1, 3, out, 2);
  EXPECT_EQ(out[0], 2.0f);
  EXPECT_EQ(out[1], -1.875f);
  EXPECT_NE(expect_error(5040, [&] { reader.read("i", {4}, 0, 1, 0, 4, out, 4); }).find("int32"), std::string::npos);
}

}  // namespace
}  // namespace trireme::checkpoint::testing
