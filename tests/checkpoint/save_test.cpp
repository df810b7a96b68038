#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <random>

#include "base/failpoint.h"
#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/samples.h"
#include "support/expect_error.h"
#include "support/seed.h"
#include "support/small_disk.h"
#include "support/temporary_folder.h"

namespace trireme::checkpoint::testing {
namespace {

namespace fs = std::filesystem;
using trireme::testing::expect_error;
using trireme::testing::SmallDisk;
using trireme::testing::TemporaryFolder;

TEST(Save, WhatIsReadIsWhatWasSaved) {
  const TemporaryFolder folder;
  const int attempt = begin_attempt(folder.path(), "run", 0);
  const fs::path saved = save_step(folder.path(), attempt, 10);
  EXPECT_EQ(saved.filename(), "step-00000010");
  EXPECT_EQ(names_in(saved), (std::vector<std::string>{"manifest.json", "state-a1-rank0.safetensors"}));
  expect_state(saved, 10);

  const Reader reader(saved);
  const Manifest& manifest = reader.manifest();
  const Manifest expected = sample_manifest(attempt, 10);
  EXPECT_EQ(manifest.run_id, expected.run_id);
  EXPECT_EQ(manifest.attempt, expected.attempt);
  EXPECT_EQ(manifest.plan_digest, expected.plan_digest);
  EXPECT_EQ(manifest.plan_yaml, expected.plan_yaml);
  EXPECT_EQ(manifest.data_digest, expected.data_digest);
  EXPECT_EQ(manifest.tokenizer_digest, expected.tokenizer_digest);
  EXPECT_EQ(manifest.data_position, expected.data_position);
  EXPECT_EQ(manifest.num_micro_batches, expected.num_micro_batches);
  EXPECT_EQ(manifest.micro_batch_size, expected.micro_batch_size);
  EXPECT_EQ(manifest.compute_threads, expected.compute_threads);
  EXPECT_EQ(manifest.kernel_level, expected.kernel_level);
  EXPECT_EQ(manifest.world_size, expected.world_size);
  EXPECT_EQ(manifest.loss_scale, expected.loss_scale);
  EXPECT_EQ(manifest.loss_scale_good_steps, expected.loss_scale_good_steps);
  EXPECT_EQ(manifest.loss_scale_hysteresis, expected.loss_scale_hysteresis);
  EXPECT_EQ(manifest.good_steps, expected.good_steps);
}

TEST(Save, NeverOverwritesItsOwnStep) {
  const TemporaryFolder folder;
  const int attempt = begin_attempt(folder.path(), "run", 0);
  const fs::path saved = save_step(folder.path(), attempt, 10);
  expect_error(5010, [&] { save_step(folder.path(), attempt, 10); });
  expect_state(saved, 10);
}

// Forks a save that dies at the failpoint.
void save_and_die(const fs::path& checkpoints, int attempt, std::int64_t step, const std::string& failpoint) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    set_failpoints(failpoint);
    save_step(checkpoints, attempt, step);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << failpoint;
}

TEST(Save, KilledAnywhereLeavesTheOldOrTheNewCheckpointAndALaterSaveWorks) {
  for (const auto& [failpoint, is_new] :
       {std::pair{"checkpoint.data=kill", false}, std::pair{"checkpoint.data=kill@7", false},
        std::pair{"checkpoint.before_manifest=kill", false}, std::pair{"checkpoint.after_manifest=kill", true}}) {
    SCOPED_TRACE(failpoint);
    const TemporaryFolder folder;
    const int first = begin_attempt(folder.path(), "run", 0);
    save_step(folder.path(), first, 10);
    save_and_die(folder.path(), first, 20, failpoint);

    const std::int64_t newest = is_new ? 20 : 10;
    ASSERT_EQ(listed_steps(folder.path()).front(), newest);
    expect_state(list(folder.path()).front().folder, newest);

    const int second = begin_attempt(folder.path(), "run", newest);
    for (const std::int64_t step : {newest + 10, newest + 20})
      expect_state(save_step(folder.path(), second, step), step);
    EXPECT_EQ(listed_steps(folder.path()).front(), newest + 20);
    const auto names = names_in(folder.path() / "step-00000020");
    EXPECT_EQ(names.size(), 2u) << "what the killed save left is gone";
  }
}

TEST(Save, AnExceptionBeforeTheManifestLeavesNothing) {
  for (const char* failpoint :
       {"checkpoint.data=throw", "checkpoint.data=throw@7", "checkpoint.before_manifest=throw"}) {
    const TemporaryFolder folder;
    const int attempt = begin_attempt(folder.path(), "run", 0);
    set_failpoints(failpoint);
    expect_error(3091, [&] { save_step(folder.path(), attempt, 10); });
    set_failpoints("");
    EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"attempts", "attempts/1.json"})) << failpoint;
    expect_state(save_step(folder.path(), attempt, 10), 10);
  }
}

TEST(Save, AnExceptionAfterTheManifestLeavesTheCheckpoint) {
  const TemporaryFolder folder;
  const int attempt = begin_attempt(folder.path(), "run", 0);
  set_failpoints("checkpoint.after_manifest=throw");
  expect_error(3091, [&] { save_step(folder.path(), attempt, 10); });
  set_failpoints("");
  expect_state(list(folder.path()).front().folder, 10);
}

TEST(Save, AFullDiskNamesTheBytesAndLeavesNothing) {
  const SmallDisk disk(2048);
  if (!disk.mounted()) GTEST_SKIP() << "may not mount a file system here";
  const int attempt = begin_attempt(disk.path(), "run", 0);
  const fs::path saved = save_step(disk.path(), attempt, 10);  // 1.2 MB of the 2 MB
  const auto before = names_in(disk.path());
  const std::string text = expect_error(5011, [&] { save_step(disk.path(), attempt, 20); });
  std::uint64_t bytes = 0;
  const State state(20);
  for (const NamedData& tensor : state.tensors()) bytes += tensor.data.size();
  EXPECT_NE(text.find("step 20 needs " + std::to_string(bytes) + " bytes"), std::string::npos) << text;
  EXPECT_EQ(names_in(disk.path()), before);
  expect_state(saved, 10);

  fs::remove_all(saved);
  expect_state(save_step(disk.path(), attempt, 20), 20);
}

// Every bit of the data file, its header and the manifest is under a digest.
TEST(Load, FindsEveryFlippedBit) {
  const unsigned seed = trireme::testing::test_seed();
  SCOPED_TRACE("TRIREME_TEST_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  const TemporaryFolder folder;
  const fs::path saved = save_step(folder.path(), begin_attempt(folder.path(), "run", 0), 10);
  const fs::path data = saved / "state-a1-rank0.safetensors", manifest = saved / "manifest.json";
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, read_file(data).data(), sizeof(header_bytes));
  const auto flip_is_found = [&](const fs::path& file, std::uint64_t bits) {
    const std::uint64_t bit = random() % bits;
    flip_bit(file, bit);
    bool found = false;
    try {
      Reader reader(saved);
    } catch (const Error& error) {
      found = error.exit_code() == 5;
    }
    EXPECT_TRUE(found) << file << ", bit " << bit;
    flip_bit(file, bit);
  };
  for (int i = 0; i < 100; ++i) {
    flip_is_found(data, fs::file_size(data) * 8);
    flip_is_found(data, (8 + header_bytes) * 8);
    flip_is_found(manifest, fs::file_size(manifest) * 8);
  }
  expect_state(saved, 10);
}

TEST(Load, FindsEveryTruncation) {
  const TemporaryFolder folder;
  const fs::path saved = save_step(folder.path(), begin_attempt(folder.path(), "run", 0), 10);
  for (const char* name : {"state-a1-rank0.safetensors", "manifest.json"}) {
    const std::string whole = read_file(saved / name);
    std::uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, whole.data(), sizeof(header_bytes));
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{8}, std::size_t{9}, std::size_t{46},
          std::size_t{47}, 8 + std::size_t{header_bytes} - 1, 8 + std::size_t{header_bytes}, std::size_t{4096},
          (std::size_t{1} << 20) - 1, std::size_t{1} << 20, (std::size_t{1} << 20) + 1, whole.size() / 2,
          whole.size() - 1}) {
      if (size >= whole.size()) continue;
      write_file_atomic(saved / name, whole.substr(0, size));
      EXPECT_THROW(Reader reader(saved), Error) << name << " cut to " << size;
      EXPECT_THROW(Reader reader(saved, false), Error) << name << " cut to " << size << ", digests not looked at";
    }
    write_file_atomic(saved / name, whole + '\0');
    EXPECT_THROW(Reader reader(saved), Error) << name << " with a byte too many";
    write_file_atomic(saved / name, whole);
  }
  expect_state(saved, 10);
}

TEST(Load, NamesTheBlockThatIsDamagedAndTheFileThatIsMissing) {
  const TemporaryFolder folder;
  const fs::path saved = save_step(folder.path(), begin_attempt(folder.path(), "run", 0), 10);
  const fs::path data = saved / "state-a1-rank0.safetensors";
  flip_bit(data, ((1 << 20) + 5) * 8);
  EXPECT_NE(expect_error(5043, [&] { Reader reader(saved); }).find("block 1"), std::string::npos);
  fs::remove(data);
  EXPECT_NE(expect_error(5041, [&] { Reader reader(saved); }).find("rank0"), std::string::npos);
}

TEST(Load, ReadsAnyBoxWithAnyStride) {
  const TemporaryFolder folder;
  const fs::path saved = save_step(folder.path(), begin_attempt(folder.path(), "run", 0), 10);
  const Reader reader(saved);
  const State state(10);
  const auto* stored = reinterpret_cast<const float*>(state.tensors()[0].data.data());
  std::vector<float> out(4 * 9, -1);
  reader.read("model.embed_tokens.weight", {7, 5}, 2, 6, 1, 4, out.data(), 9);
  for (int row = 0; row < 4; ++row) {
    for (int column = 0; column < 9; ++column) {
      EXPECT_EQ(out[static_cast<std::size_t>(row * 9 + column)], column < 3 ? stored[(row + 2) * 5 + column + 1] : -1);
    }
  }
}

TEST(Load, SaysWhichTensorDoesNotFit) {
  const TemporaryFolder folder;
  const fs::path saved = save_step(folder.path(), begin_attempt(folder.path(), "run", 0), 10);
  const Reader reader(saved);
  float out[64];
  const auto read = [&](const std::string& name, const std::vector<std::int64_t>& shape, std::int64_t columns) {
    return [&, name, shape, columns] { reader.read(name, shape, 0, 1, 0, columns, out, columns); };
  };
  EXPECT_NE(expect_error(5040, read("model.norm", {13}, 13)).find("model.norm "), std::string::npos);
  const std::string text = expect_error(5040, read("model.norm.weight", {14}, 14));
  EXPECT_NE(text.find("[13]"), std::string::npos) << text;
  EXPECT_NE(text.find("[14]"), std::string::npos) << text;
  expect_error(1000, read("model.norm.weight", {13}, 14));
}

}  // namespace
}  // namespace trireme::checkpoint::testing
