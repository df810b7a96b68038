#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <set>
#include <thread>

#include "base/failpoint.h"
#include "data/dataset.h"
#include "data/folder_lock.h"
#include "data/manifest.h"
#include "data/tokenizer.h"
#include "prepare_support.h"
#include "support/small_disk.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

// A corpus of some text files, nested, and some JSONL files, that spreads over several shards.
void write_corpus(const fs::path& folder, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  for (int i = 0; i < 3; ++i) {
    write(folder / ("t" + std::to_string(i) + ".txt"), "plain\n" + random_text(random, 3000));
    std::string lines;
    for (int k = 0; k < 40; ++k) lines += json_line(random_text(random, 200));
    write(folder / "sub" / ("j" + std::to_string(i) + ".jsonl"), lines);
  }
  write(folder / "ignored.md", "not a text file by its name");
}

PrepareOptions options_for(const TempFolder& folder, const std::string& output) {
  PrepareOptions options;
  options.inputs = {folder / "in"};
  options.output = folder / output;
  options.held_out = 0.1;
  options.shard_tokens = 1000;
  return options;
}

std::string decode_split(const fs::path& folder, const std::string& split) {
  const Dataset dataset(folder, split, {.sequence_length = 1});
  const std::vector<std::int32_t> ids = dataset.tokens(0, dataset.num_tokens());
  const auto tokenizer = load_tokenizer(dataset.tokenizer_folder().string());
  std::string text;
  std::uint64_t begin = 0;
  for (std::uint64_t i = 0; i < dataset.num_documents(); ++i) {
    const std::uint64_t end = dataset.document_end(i);
    EXPECT_EQ(ids[end - 1], tokenizer->end_of_document());
    text += tokenizer->decode(ids.data() + begin, end - 1 - begin);
    begin = end;
  }
  return text;
}

// The text comes back byte for byte, in the order of the inputs' paths and of the records in them.
TEST(Prepare, KeepsEveryByteOfTheText) {
  const TempFolder folder;
  write(folder / "in/b.txt", "second file\n");
  write(folder / "in/a.jsonl", "{\"text\": \"h\\u00e9llo\"}\n\n{\"id\": 1, \"text\": \"w\\n\"}\r\n");
  write(folder / "in/c/d.txt", "\xEF\xBB\xBFthird");
  PrepareOptions options = options_for(folder, "out");
  options.held_out = 0;
  const PrepareReport report = prepare(options);
  EXPECT_EQ(report.documents, 4u);
  EXPECT_EQ(report.malformed_count, 0u);
  EXPECT_EQ(decode_split(folder / "out", "train"), "h\xC3\xA9llow\nsecond file\nthird");
  EXPECT_EQ(report.bytes, decode_split(folder / "out", "train").size());
  EXPECT_EQ(report.tokens, report.bytes + 4);
}

TEST(Prepare, FilesDoNotDependOnTheNumberOfWorkers) {
  const TempFolder folder;
  write_corpus(folder / "in", 1);
  PrepareOptions one = options_for(folder, "one"), four = options_for(folder, "four");
  four.num_workers = 4;
  prepare(one);
  prepare(four);
  EXPECT_EQ(contents(folder / "one"), contents(folder / "four"));
  EXPECT_GT(contents(folder / "one").size(), 8u);
}

TEST(Prepare, TheSplitsAreAPartitionOfTheDocuments) {
  const TempFolder folder;
  write_corpus(folder / "in", 2);
  PrepareOptions split = options_for(folder, "split"), whole = options_for(folder, "whole");
  split.held_out = 0.3;
  whole.held_out = 0;
  prepare(split);
  const PrepareReport report = prepare(whole);
  const Manifest manifest = read_manifest(folder / "split");
  EXPECT_EQ(manifest.train.documents + manifest.heldout.documents, report.documents);
  EXPECT_EQ(manifest.train.tokens + manifest.heldout.tokens, report.tokens);
  EXPECT_EQ(manifest.train.bytes + manifest.heldout.bytes, report.bytes);
  EXPECT_NEAR(static_cast<double>(manifest.heldout.documents) / static_cast<double>(report.documents), 0.3, 0.15);
  std::string both = decode_split(folder / "split", "train") + decode_split(folder / "split", "heldout");
  std::string all = decode_split(folder / "whole", "train");
  std::sort(both.begin(), both.end());
  std::sort(all.begin(), all.end());
  EXPECT_EQ(both, all);
}

// A document stays in its split whatever comes before or after it.
TEST(Prepare, HeldOutDocumentsDoNotMoveWhenInputsAreAdded) {
  const TempFolder folder;
  write_corpus(folder / "in", 3);
  PrepareOptions options = options_for(folder, "out");
  options.held_out = 0.3;
  prepare(options);
  const std::string before = decode_split(folder / "out", "heldout");
  write(folder / "in/zz.txt", "one more");
  EXPECT_FALSE(prepare(options).was_up_to_date);
  const std::string after = decode_split(folder / "out", "heldout");
  EXPECT_EQ(after.substr(0, before.size()), before);
}

TEST(Prepare, TakesAtLeastOneDocumentOfTwoAndLeavesOne) {
  for (const double share : {1e-9, 1 - 1e-9}) {
    const TempFolder folder;
    write(folder / "in/a.txt", "one");
    write(folder / "in/b.txt", "two");
    PrepareOptions options = options_for(folder, "out");
    options.held_out = share;
    prepare(options);
    const Manifest manifest = read_manifest(folder / "out");
    EXPECT_EQ(manifest.train.documents, 1u) << share;
    EXPECT_EQ(manifest.heldout.documents, 1u) << share;
    EXPECT_NE(manifest.held_out_rule.find("since"), std::string::npos) << manifest.held_out_rule;
  }
}

TEST(Prepare, HoldsOutTheTailOfASingleDocumentAtACharacterBorder) {
  for (const char* name : {"a.txt", "a.jsonl"}) {
    const TempFolder folder;
    std::string text;
    for (int i = 0; i < 100; ++i) text += "水";
    write(folder / "in" / name, fs::path(name).extension() == ".txt" ? text : json_line(text));
    PrepareOptions options = options_for(folder, "out");
    options.held_out = 0.1;
    const PrepareReport report = prepare(options);
    EXPECT_EQ(report.held_out_tokens, 31u);  // 10 characters of 3 bytes, and the mark
    EXPECT_EQ(decode_split(folder / "out", "train") + decode_split(folder / "out", "heldout"), text);
    EXPECT_NE(read_manifest(folder / "out").held_out_rule.find("byte 270"), std::string::npos);
  }
}

TEST(Prepare, ASingleCharacterIsNotCut) {
  const TempFolder folder;
  write(folder / "in/a.txt", "水");
  PrepareOptions options = options_for(folder, "out");
  options.held_out = 0.5;
  prepare(options);
  EXPECT_EQ(decode_split(folder / "out", "train"), "水");
  EXPECT_EQ(error_code([&] { Dataset(folder / "out", "heldout", {.sequence_length = 1}); }), 4023);
}

// The second run reads nothing; one that reads would take far longer for 64 MB. The first of two bounds is the promise.
TEST(Prepare, AnUnchangedRunIsUpToDateWithoutReading) {
  const TempFolder folder;
  write_corpus(folder / "in", 4);
  const PrepareOptions options = options_for(folder, "out");
  const PrepareReport first = prepare(options);
  const auto files = contents(folder / "out");
  const PrepareReport second = prepare(options);
  EXPECT_FALSE(first.was_up_to_date);
  EXPECT_TRUE(second.was_up_to_date);
  EXPECT_EQ(second.tokens, first.tokens);
  EXPECT_EQ(second.held_out_tokens, first.held_out_tokens);
  // Bytes that changed behind an equal size and time are not looked at: that is what makes it quick.
  const fs::path input = folder / "in/t0.txt";
  const auto time = fs::last_write_time(input);
  std::string text = read_file(input);
  text[0] = 'P';
  write(input, text);
  fs::last_write_time(input, time);
  EXPECT_TRUE(prepare(options).was_up_to_date);
  // A new time makes it look; equal content is up to date all the same.
  text[0] = 'p';
  write(input, text);
  fs::last_write_time(input, time + std::chrono::seconds(5));
  EXPECT_TRUE(prepare(options).was_up_to_date);
  EXPECT_EQ(contents(folder / "out"), files);
}

TEST(Prepare, WorkIsRedoneWhenInputOptionOrTokenizerChange) {
  const TempFolder folder;
  write_corpus(folder / "in", 5);
  PrepareOptions options = options_for(folder, "out");
  prepare(options);
  std::string text = read_file(folder / "in/t1.txt");
  text[0] = 'Q';
  write(folder / "in/t1.txt", text);
  fs::last_write_time(folder / "in/t1.txt", fs::file_time_type::clock::now() + std::chrono::seconds(5));
  EXPECT_FALSE(prepare(options).was_up_to_date);
  EXPECT_NE(decode_split(folder / "out", "train").find("Qlain"), std::string::npos);
  options.held_out = 0.2;
  EXPECT_FALSE(prepare(options).was_up_to_date);
  EXPECT_TRUE(prepare(options).was_up_to_date);
  fs::remove(folder / "out/train-00000.tokens");
  EXPECT_FALSE(prepare(options).was_up_to_date);
}

// The folder's own copy of the tokenizer serves to prepare it again.
TEST(Prepare, TheKeptTokenizerCanBeNamedAsTheTokenizer) {
  const TempFolder folder;
  write_corpus(folder / "in", 6);
  PrepareOptions options = options_for(folder, "out");
  prepare(options);
  const auto files = contents(folder / "out");
  options.tokenizer = (folder / "out/tokenizer").string();
  prepare(options);
  EXPECT_EQ(contents(folder / "out"), files);
}

// Killed at any of its failpoints, any number of times, and run again: the files of a run that was left alone.
TEST(Prepare, KilledAnywhereAndRunAgainGivesTheSameFiles) {
  const TempFolder folder;
  write_corpus(folder / "in", 7);
  PrepareOptions options = options_for(folder, "whole");
  prepare(options);
  const auto expected = contents(folder / "whole");
  options.num_workers = 2;
  std::vector<std::string> kills = {"data.prepare.manifest=kill"};
  for (int hit = 1; hit <= 6; ++hit) kills.push_back("data.prepare=kill@" + std::to_string(hit));
  for (int hit : {1, 2, 5, 9}) kills.push_back("data.prepare.shard=kill@" + std::to_string(hit));
  for (std::size_t i = 0; i < kills.size(); ++i) {
    options.output = folder / ("killed-" + std::to_string(i));
    for (const std::string& kill : {kills[i], kills[(i * 5 + 3) % kills.size()]}) {
      const pid_t child = ::fork();
      if (child == 0) {
        set_failpoints(kill);
        try {
          prepare(options);
        } catch (...) {
          ::_exit(1);
        }
        ::_exit(0);
      }
      int status = 0;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      ASSERT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0) << kill;
      if (WIFSIGNALED(status)) {
        EXPECT_FALSE(fs::exists(options.output / "manifest.json")) << kill;
      }
    }
    prepare(options);
    EXPECT_EQ(contents(options.output), expected) << kills[i];
  }
}

// Inputs that were done before a kill are not read again: one that has since become unusable, behind an equal size and
// time, does no harm.
TEST(Prepare, FinishedInputsAreNotReadAgain) {
  const TempFolder folder;
  write(folder / "in/a.txt", "first file");
  write(folder / "in/b.txt", "second file");
  PrepareOptions options = options_for(folder, "out");
  set_failpoints("data.prepare=throw@1");
  EXPECT_EQ(error_code([&] { prepare(options); }), 3091);
  set_failpoints("");
  const auto time = fs::last_write_time(folder / "in/a.txt");
  write(folder / "in/a.txt", std::string("first\0file", 10));
  fs::last_write_time(folder / "in/a.txt", time);
  EXPECT_EQ(prepare(options).documents, 2u);
  EXPECT_EQ(decode_split(folder / "out", "train") + decode_split(folder / "out", "heldout"),
            read_manifest(folder / "out").heldout.bytes == 10 ? "second filefirst file" : "first filesecond file");
}

TEST(Prepare, ACorruptPartIsMadeAgain) {
  const TempFolder folder;
  write_corpus(folder / "in", 8);
  prepare(options_for(folder, "whole"));
  PrepareOptions options = options_for(folder, "out");
  set_failpoints("data.prepare=throw@4");
  EXPECT_EQ(error_code([&] { prepare(options); }), 3091);
  set_failpoints("");
  int damaged = 0;
  for (const auto& entry : fs::directory_iterator(folder / "out/.prepare/parts")) {
    std::string bytes = read_file(entry.path());
    if (bytes.empty()) continue;
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    if (damaged++ % 2 == 0) bytes.resize(bytes.size() / 2);
    write(entry.path(), bytes);
  }
  EXPECT_GE(damaged, 12);
  prepare(options);
  EXPECT_EQ(contents(folder / "out"), contents(folder / "whole"));
}

// An error before anything is finished leaves no trace; data that was there stays as it was.
TEST(Prepare, AnErrorLeavesNothingHalfWritten) {
  const TempFolder folder;
  write(folder / "in/a.txt", std::string("a\0b", 3));
  PrepareOptions options = options_for(folder, "out");
  EXPECT_EQ(error_code([&] { prepare(options); }), 4020);
  EXPECT_FALSE(fs::exists(folder / "out"));
  write(folder / "in/a.txt", "good");
  prepare(options);
  const auto files = contents(folder / "out");
  write(folder / "in/b.txt", std::string("a\0b", 3));
  EXPECT_EQ(error_code([&] { prepare(options); }), 4020);
  EXPECT_EQ(contents(folder / "out"), files);
}

// Whichever file the space runs out in, the error says so; there is no manifest; with room again it goes on.
TEST(Prepare, AFullDiskIsAnErrorAndTheWorkGoesOnOnceThereIsRoom) {
  const TempFolder folder;
  write_corpus(folder / "in", 12);
  prepare(options_for(folder, "whole"));
  int full = 0;
  for (const std::size_t kilobytes : {16, 60, 90, 110, 130, 1000}) {
    const trireme::testing::SmallDisk disk(kilobytes);
    if (!disk.mounted()) GTEST_SKIP() << "may not mount a file system here";
    PrepareOptions options = options_for(folder, "");
    options.output = disk.path() / "out";
    const int code = error_code([&] { prepare(options); });
    EXPECT_TRUE(code == 0 || code == kDiskFull) << code << " at " << kilobytes;
    full += code != 0 ? 1 : 0;
    EXPECT_EQ(fs::exists(options.output / "manifest.json"), code == 0) << kilobytes;
    ASSERT_EQ(::mount("none", disk.path().c_str(), nullptr, MS_REMOUNT, "size=4m"), 0);
    prepare(options);
    EXPECT_EQ(contents(options.output).size(), contents(folder / "whole").size());
    EXPECT_EQ(contents(options.output)["train-00001.tokens"], contents(folder / "whole")["train-00001.tokens"]);
  }
  EXPECT_GE(full, 3);
}

TEST(Prepare, ASecondProcessInTheFolderIsRefusedAndNamesTheFirst) {
  const TempFolder folder;
  write_corpus(folder / "in", 9);
  const PrepareOptions options = options_for(folder, "out");
  prepare(options);
  const FolderLock lock(folder / "out/.prepare/lock");
  const Error error = error_of([&] { prepare(options); });
  EXPECT_EQ(error.code(), 4010);
  EXPECT_NE(error.message().find("process " + std::to_string(::getpid())), std::string::npos) << error.what();
}

// A data set that is open goes on reading what it opened.
TEST(Prepare, PreparingAgainDoesNotDisturbAnOpenDataset) {
  const TempFolder folder;
  write_corpus(folder / "in", 10);
  PrepareOptions options = options_for(folder, "out");
  prepare(options);
  const Dataset dataset(folder / "out", "train", {.sequence_length = 7});
  const std::string before = decode_split(folder / "out", "train");
  write(folder / "in/a.txt", "new");
  prepare(options);
  EXPECT_NE(decode_split(folder / "out", "train"), before);
  const std::vector<std::int32_t> ids = dataset.tokens(0, dataset.num_tokens());
  EXPECT_EQ(ids.size(), dataset.num_bytes() + dataset.num_documents());
}

TEST(Prepare, WrongInputsAreRefusedEachWithItsCode) {
  const TempFolder folder;
  write(folder / "in/a.txt", "text");
  write(folder / "empty/readme.md", "nothing here");
  write(folder / "x.csv", "a,b");
  write(folder / "other/manifest.json", "{\"format\": \"something else\"}");
  write(folder / "file", "no folder");
  const auto code = [&](std::vector<fs::path> inputs, const fs::path& output, double share = 0) {
    PrepareOptions options;
    options.inputs = std::move(inputs);
    options.output = output;
    options.held_out = share;
    return error_code([&] { prepare(options); });
  };
  EXPECT_EQ(code({folder / "nowhere.txt"}, folder / "out"), 4001);
  EXPECT_EQ(code({"/dev/null"}, folder / "out"), 4002);
  EXPECT_EQ(code({folder / "x.csv"}, folder / "out"), 4003);
  EXPECT_EQ(code({folder / "empty"}, folder / "out"), 4004);
  EXPECT_EQ(code({folder / "in"}, folder / "in/out"), 4005);
  EXPECT_EQ(code({folder / "in/a.txt"}, folder / "in"), 4005);
  EXPECT_EQ(code({folder / "in", folder / "in/../in/a.txt"}, folder / "out"), 4006);
  EXPECT_EQ(code({}, folder / "out"), 4008);
  EXPECT_EQ(code({folder / "in"}, folder / "out", 1.0), 4009);
  EXPECT_EQ(code({folder / "in"}, folder / "out", -0.1), 4009);
  EXPECT_EQ(code({folder / "in"}, folder / "other"), 4011);
  EXPECT_EQ(code({folder / "in"}, folder / "file"), 4011);
  EXPECT_EQ(code({folder / "in"}, folder / "file/out"), kWriteFailed);
  EXPECT_FALSE(fs::exists(folder / "out"));
}

TEST(Prepare, ProgressGrowsToOne) {
  const TempFolder folder;
  write_corpus(folder / "in", 11);
  PrepareOptions options = options_for(folder, "out");
  std::vector<double> fractions;
  std::uint64_t last_tokens = 0;
  options.progress = [&](double fraction, std::uint64_t tokens) {
    fractions.push_back(fraction);
    last_tokens = tokens;
  };
  const PrepareReport report = prepare(options);
  EXPECT_TRUE(std::is_sorted(fractions.begin(), fractions.end()));
  EXPECT_EQ(fractions.back(), 1.0);
  EXPECT_EQ(last_tokens, report.tokens);
}

}  // namespace
}  // namespace trireme::data
