#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <fstream>
#include <random>
#include <thread>

#include "support/expect_error.h"
#include "support/seed.h"
#include "support/small_disk.h"
#include "support/temporary_folder.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using testing::expect_error;
using testing::SmallDisk;
using testing::TemporaryFolder;

std::size_t num_files(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

std::string random_text(std::size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

TEST(ReadFile, ReturnsEveryByteOfAnySize) {
  const TemporaryFolder folder;
  for (const std::size_t size : {0u, 1u, 4095u, 4096u, 4097u, 1000003u}) {
    const std::string text = random_text(size, 1);
    std::ofstream(folder.path() / "f", std::ios::binary) << text;
    EXPECT_EQ(read_file(folder.path() / "f"), text);
  }
}

TEST(ReadFile, ReadsFilesThatDoNotKnowTheirSize) {
  EXPECT_NE(read_file("/proc/self/status").find("Pid:"), std::string::npos);
}

TEST(ReadFile, RefusesWhatIsNoFile) {
  const TemporaryFolder folder;
  EXPECT_NE(expect_error(kReadFailed, [&] { read_file(folder.path() / "missing"); }).find("No such file"),
            std::string::npos);
  expect_error(kReadFailed, [&] { read_file(folder.path()); });
  expect_error(kReadFailed, [] { read_file("/dev/zero"); });
  expect_error(kReadFailed, [] { MappedFile("/dev/zero"); });
}

TEST(WriteFileAtomic, ReplacesTheWholeFileAndLeavesNothingElse) {
  const TemporaryFolder folder;
  write_file_atomic(folder.path() / "f", "old");
  write_file_atomic(folder.path() / "f", "new and longer");
  EXPECT_EQ(read_file(folder.path() / "f"), "new and longer");
  EXPECT_EQ(num_files(folder.path()), 1u);
}

TEST(WriteFileAtomic, KeepsTheOldFileWhenItFails) {
  const TemporaryFolder folder;
  fs::create_directories(folder.path() / "taken" / "inside");  // a folder with content cannot be renamed over
  expect_error(kWriteFailed, [&] { write_file_atomic(folder.path() / "taken", "text"); });
  EXPECT_TRUE(fs::exists(folder.path() / "taken" / "inside"));
  EXPECT_EQ(num_files(folder.path()), 1u);
  expect_error(kWriteFailed, [&] { write_file_atomic(folder.path() / "no" / "such" / "folder", "text"); });
}

// A reader never sees anything but one of the whole versions.
TEST(WriteFileAtomic, ShowsReadersWholeVersionsOnly) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "f";
  const std::string a(200000, 'a'), b(70000, 'b');
  write_file_atomic(path, a);
  std::thread writer([&] {
    for (int i = 0; i < 40; ++i) write_file_atomic(path, i % 2 == 0 ? b : a);
  });
  for (int i = 0; i < 40; ++i) {
    const std::string seen = read_file(path);
    EXPECT_TRUE(seen == a || seen == b) << seen.size();
  }
  writer.join();
}

TEST(CreateFileExclusive, NeverReplaces) {
  const TemporaryFolder folder;
  create_file_exclusive(folder.path() / "f", "first");
  expect_error(5010, [&] { create_file_exclusive(folder.path() / "f", "second"); });
  EXPECT_EQ(read_file(folder.path() / "f"), "first");
  EXPECT_EQ(num_files(folder.path()), 1u);
}

TEST(CreateFileExclusive, HasOneWinnerAmongMany) {
  const TemporaryFolder folder;
  std::atomic<int> won = 0, lost = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      try {
        create_file_exclusive(folder.path() / "f", std::string(50000, static_cast<char>('a' + i)));
        ++won;
      } catch (const Error& error) {
        if (error.code() == 5010) ++lost;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(won, 1);
  EXPECT_EQ(lost, 7);
  const std::string text = read_file(folder.path() / "f");
  EXPECT_EQ(text, std::string(50000, text[0]));
  EXPECT_EQ(num_files(folder.path()), 1u);
}

TEST(FileWriter, WritesPiecesOfAnySizeInOrder) {
  const TemporaryFolder folder;
  const unsigned seed = testing::test_seed();
  SCOPED_TRACE("TRIREME_TEST_SEED=" + std::to_string(seed));
  std::mt19937 random(seed);
  std::string expected;
  FileWriter writer(folder.path() / "f");
  for (int i = 0; i < 200; ++i) {
    const std::string piece = random_text(i % 50 == 7 ? (1 << 20) + random() % 100 : random() % 20000, random());
    writer.write(std::as_bytes(std::span(piece)));
    expected += piece;
  }
  EXPECT_EQ(writer.size(), expected.size());
  writer.finish();
  EXPECT_TRUE(read_file(folder.path() / "f") == expected);
}

TEST(FileWriter, LeavesNothingUnlessItWasFinished) {
  const TemporaryFolder folder;
  {
    FileWriter first(folder.path() / "f");
    FileWriter moved(std::move(first));
    moved.write(std::as_bytes(std::span(std::string_view("text"))));
    EXPECT_TRUE(fs::exists(folder.path() / "f"));
  }
  EXPECT_FALSE(fs::exists(folder.path() / "f"));
}

TEST(FileWriter, RefusesAFileThatExists) {
  const TemporaryFolder folder;
  write_file_atomic(folder.path() / "f", "mine");
  expect_error(kWriteFailed, [&] { FileWriter(folder.path() / "f"); });
  EXPECT_EQ(read_file(folder.path() / "f"), "mine");
}

TEST(FullDisk, NamesTheBytesAndLeavesNothing) {
  const SmallDisk disk(64);
  if (!disk.mounted()) GTEST_SKIP() << "may not mount a file system here";
  write_file_atomic(disk.path() / "small", "old");
  const std::string big(1 << 20, 'x');
  const auto text = expect_error(kDiskFull, [&] { write_file_atomic(disk.path() / "small", big); });
  EXPECT_NE(text.find("more bytes are needed"), std::string::npos) << text;
  EXPECT_EQ(read_file(disk.path() / "small"), "old");
  expect_error(kDiskFull, [&] { create_file_exclusive(disk.path() / "other", big); });
  EXPECT_EQ(num_files(disk.path()), 1u);
}

TEST(MappedFile, HoldsTheBytesAfterAMoveAndAfterTheNameIsGone) {
  const TemporaryFolder folder;
  write_file_atomic(folder.path() / "f", "bytes");
  MappedFile map(folder.path() / "f");
  MappedFile other;
  EXPECT_TRUE(other.bytes().empty());
  other = std::move(map);
  fs::remove(folder.path() / "f");
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(other.bytes().data()), other.bytes().size()), "bytes");
}

TEST(MappedFile, MapsAnEmptyFileToNothing) {
  const TemporaryFolder folder;
  write_file_atomic(folder.path() / "f", "");
  EXPECT_TRUE(MappedFile(folder.path() / "f").bytes().empty());
}

}  // namespace
}  // namespace trireme
