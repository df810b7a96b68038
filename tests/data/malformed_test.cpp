#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "data/dataset.h"
#include "data/manifest.h"
#include "data/records.h"
#include "prepare_support.h"
#include "support/seed.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

const std::string kNul(1, '\0');

PrepareOptions malformed_options(const TempFolder& folder, bool skip) {
  PrepareOptions options;
  options.inputs = {folder / "in"};
  options.output = folder / "out";
  options.skip_malformed = skip;
  options.max_record_bytes = 1000;
  options.num_workers = 2;
  return options;
}

struct Case {
  std::string name, bytes, kind;
  std::uint64_t line, byte;
};

const std::vector<Case>& cases() {
  static const std::string good = json_line("good");  // 17 bytes
  static const std::vector<Case> all = {
      {"a.jsonl", good + "{\"text\": \"cut\n" + good, kBadJson, 2, 17 + 12},
      {"a.jsonl", good + "{\"text\": 'x'}\n", kBadJson, 2, 17 + 9},
      {"a.jsonl", good + "{\"text\": \"a\"} {}\n", kBadJson, 2, 17 + 14},
      {"a.jsonl", good + "{\"text\": \"\\ud800\"}\n", kBadJson, 2, 17 + 16},
      {"a.jsonl", good + "\xEF\xBB\xBF" + good, kBadJson, 2, 17},
      {"a.jsonl", good + std::string(900, '[') + "\n", kBadJson, 2, 17 + 899},
      {"a.jsonl", good + "\n \t\r\n{\"texts\": \"a\"}\n", kNoTextField, 4, 17 + 1 + 4},
      {"a.jsonl", good + "{\"text\": 5}\n", kNoTextField, 2, 17},
      {"a.jsonl", good + "{\"text\": null}\n", kNoTextField, 2, 17},
      {"a.jsonl", good + "{\"text\": {\"text\": \"a\"}}\n", kNoTextField, 2, 17},
      {"a.jsonl", good + "[\"text\", \"a\"]\n", kNoTextField, 2, 17},
      {"a.jsonl", good + "[{\"text\": \"a\"}]\n", kNoTextField, 2, 17},
      {"a.jsonl", good + "\"text\"\n", kNoTextField, 2, 17},
      {"a.jsonl", good + "{\"text\": \"a" + kNul + "b\"}\n", kNulByte, 2, 17 + 11},
      {"a.jsonl", good + "{\"text\": \"a\\u0000b\"}\n", kNulByte, 2, 17},
      {"a.jsonl", good + "{\"text\": \"a\xFF\"}\n", kInvalidUtf8, 2, 17 + 11},
      {"a.jsonl", good + "{\"text\": \"" + std::string(1000, 'x') + "\"}\n" + good, kTooLong, 2, 17},
      {"a.jsonl", good + std::string(1001, ' ') + "\n", kTooLong, 2, 17},
      {"a.jsonl", good + "{\"text\": \"\"}\n", kEmpty, 2, 17},
      {"a.jsonl", good + "{}", kNoTextField, 2, 17},
      {"b.txt", "", kEmpty, 1, 0},
      {"b.txt", "\xEF\xBB\xBF", kEmpty, 1, 3},
      {"b.txt", "ab\ncd\nx" + kNul, kNulByte, 3, 7},
      {"b.txt", "ab\n\xC3\xA4\xC3", kInvalidUtf8, 2, 5},
      {"b.txt", std::string("\xFF\xFEt\0e\0", 6), kInvalidUtf8, 1, 0},
      {"b.txt", std::string(1001, 'x'), kTooLong, 1, 0},
  };
  return all;
}

TEST(Malformed, EveryKindIsLocatedAndStops) {
  for (const Case& one : cases()) {
    const TempFolder folder;
    const fs::path file = write(folder / "in" / one.name, one.bytes);
    write(folder / "in/good.txt", "good");
    const Error error = error_of([&] { prepare(malformed_options(folder, false)); });
    EXPECT_EQ(error.code(), 4020) << one.bytes;
    EXPECT_EQ(error.exit_code(), 4);
    EXPECT_EQ(error.place(), file.string() + ":" + std::to_string(one.line)) << one.bytes;
    EXPECT_EQ(error.message(), "malformed record: " + one.kind + " (byte " + std::to_string(one.byte) + ")")
        << one.bytes;
    EXPECT_FALSE(error.remedy().empty());
  }
}

TEST(Malformed, EveryKindIsLocatedAndSkipped) {
  for (const Case& one : cases()) {
    const TempFolder folder;
    const fs::path file = write(folder / "in" / one.name, one.bytes);
    write(folder / "in/good.txt", "good");
    for (int run = 0; run < 2; ++run) {  // the second is up to date and tells the same
      const PrepareReport report = prepare(malformed_options(folder, true));
      EXPECT_EQ(report.was_up_to_date, run == 1);
      ASSERT_EQ(report.malformed_count, 1u) << one.bytes;
      EXPECT_EQ(report.malformed[0].kind, one.kind) << one.bytes;
      EXPECT_EQ(report.malformed[0].place,
                file.string() + ":" + std::to_string(one.line) + " (byte " + std::to_string(one.byte) + ")");
    }
    EXPECT_EQ(read_manifest(folder / "out").malformed_counts.at(one.kind), 1u);
  }
}

// What is unusual but fine.
TEST(Malformed, UnusualRecordsAreAccepted) {
  const TempFolder folder;
  write(folder / "in/a.jsonl",
        "\xEF\xBB\xBF\r\n\n  {\"text\" : \"one\", \"text\": \"two\"}  \r\n{\"a\": {\"text\": 1}, \"text\": "
        "\"\\ud83d\\ude00\"}\n" +
            std::string("{\"n\": [[[]]], \"text\": \"last line without an end\"}"));
  const PrepareReport report = prepare(malformed_options(folder, false));
  EXPECT_EQ(report.documents, 3u);
  EXPECT_EQ(report.bytes, std::string("two\xF0\x9F\x98\x80last line without an end").size());
}

TEST(Malformed, TheFirstInOrderStopsWhateverTheWorkers) {
  const TempFolder folder;
  std::string lines;
  for (int i = 0; i < 60'000; ++i) lines += json_line("some words to fill a few batches of a megabyte each");
  write(folder / "in/a.jsonl", lines + "first\n" + lines + "second\n");
  write(folder / "in/b.jsonl", "third\n");
  PrepareOptions options = malformed_options(folder, false);
  for (const int workers : {1, 4}) {
    options.num_workers = workers;
    EXPECT_EQ(error_of([&] { prepare(options); }).place(), (folder / "in/a.jsonl").string() + ":60001");
  }
}

TEST(Malformed, NothingUsableIsAnError) {
  const TempFolder folder;
  write(folder / "in/a.jsonl", "\n\n  \n");
  EXPECT_EQ(error_code([&] { prepare(malformed_options(folder, false)); }), 4021);
  write(folder / "in/a.jsonl", "x\ny\n");
  const Error error = error_of([&] { prepare(malformed_options(folder, true)); });
  EXPECT_EQ(error.code(), 4021);
  EXPECT_NE(error.message().find("2 malformed"), std::string::npos) << error.what();
}

TEST(Malformed, AHundredAreListedAndAllAreCounted) {
  const TempFolder folder;
  std::string lines;
  for (int i = 0; i < 150; ++i) lines += i % 2 == 0 ? "x\n" : "{}\n";
  write(folder / "in/a.jsonl", lines);
  write(folder / "in/b.jsonl", lines + json_line("good"));
  const PrepareReport report = prepare(malformed_options(folder, true));
  EXPECT_EQ(report.malformed_count, 300u);
  EXPECT_EQ(report.malformed.size(), 100u);
  const Manifest manifest = read_manifest(folder / "out");
  EXPECT_EQ(manifest.malformed_counts.at(kBadJson), 150u);
  EXPECT_EQ(manifest.malformed_counts.at(kNoTextField), 150u);
}

// A line of 100 MB is found and named within a few megabytes of memory.
TEST(Malformed, AVeryLongLineIsNotHeld) {
  const TempFolder folder;
  const fs::path file = folder / "in/a.jsonl";
  fs::create_directories(folder / "in");
  {
    std::ofstream out(file, std::ios::binary);
    out << json_line("good");
    const std::string block(1 << 20, 'x');
    for (int i = 0; i < 100; ++i) out << block;
    out << "\n" << json_line("good");
  }
  RecordReader reader(stat_input(file), 1 << 16);
  std::size_t most = 0, records = 0;
  while (const std::optional<RecordBatch> batch = reader.next(1 << 20)) {
    most = std::max(most, batch->bytes.capacity());
    records += batch->records.size();
  }
  EXPECT_EQ(records, 3u);
  EXPECT_LE(most, std::size_t{3} << 20);
  const PrepareReport report = prepare(malformed_options(folder, true));
  EXPECT_EQ(report.documents, 2u);
  EXPECT_EQ(report.malformed.at(0).kind, kTooLong);
  EXPECT_EQ(report.malformed.at(0).place, file.string() + ":2 (byte 17)");
}

TEST(Malformed, InvalidUtf8IsFoundAtItsByte) {
  const std::vector<std::pair<std::string, int>> texts = {
      {"", -1},
      {"plain text of more than eight bytes", -1},
      {"\xC2\x80 \xDF\xBF \xE0\xA0\x80 \xED\x9F\xBF \xEE\x80\x80 \xF0\x90\x80\x80 \xF4\x8F\xBF\xBF", -1},
      {"\x80", 0},                  // a continuation alone
      {"12345678\xC3", 8},          // cut
      {"\xC0\x80", 0},              // overlong
      {"\xE0\x9F\xBF", 0},          // overlong
      {"\xF0\x8F\xBF\xBF", 0},      // overlong
      {"a\xED\xA0\x80", 1},         // a surrogate
      {"ab\xF4\x90\x80\x80", 2},    // beyond the last
      {"\xF5\x80\x80\x80", 0},      // never starts a character
      {"\xE6\xB0\xB4\xE6\xB0", 3},  // cut after a whole one
      {"\xF0\x9F\x98\x80\xF0\x9F\x98", 4},
  };
  for (const auto& [text, at] : texts) {
    const std::optional<std::size_t> found = find_invalid_utf8(text);
    EXPECT_EQ(found ? static_cast<int>(*found) : -1, at) << text;
  }
}

// Whatever the bytes of a line, it is a text or a fault within it; nothing else happens.
TEST(Malformed, RandomLinesNeverDoAnythingElse) {
  const unsigned seed = trireme::testing::test_seed();
  SCOPED_TRACE("TRIREME_TEST_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  const std::vector<std::string> pieces = {"{",
                                           "}",
                                           "[",
                                           "]",
                                           "\"",
                                           "\"text\"",
                                           ":",
                                           ",",
                                           "\\",
                                           "\\u",
                                           "d8",
                                           "0000",
                                           "1e99",
                                           "-1.5e3",
                                           "null",
                                           "true",
                                           "\xEF\xBB\xBF",
                                           "a",
                                           "水",
                                           "\xFF",
                                           kNul,
                                           " ",
                                           "\t",
                                           "\"x\"",
                                           "{\"text\":\"a\"}"};
  std::size_t texts = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string line;
    const std::size_t count = random() % 12;
    for (std::size_t k = 0; k < count; ++k) line += pieces[random() % pieces.size()];
    if (i % 4 == 0) {
      line = "{\"a\": [1, {\"b\": null}], \"text\": \"some \\u00e4 text\"}";
      const std::size_t at = random() % line.size();
      line[at] = static_cast<char>(random());
    }
    const Record record{.line = 7, .byte = 1000, .size = line.size()};
    const Checked checked = check_record(InputKind::jsonl, line, record, "text");
    if (checked.fault) {
      EXPECT_GE(checked.fault->byte, 1000u);
      EXPECT_LE(checked.fault->byte, 1000u + line.size());
    } else {
      ++texts;
      EXPECT_FALSE(checked.text.empty());
      EXPECT_FALSE(find_invalid_utf8(checked.text).has_value());
      EXPECT_EQ(checked.text.find('\0'), std::string::npos);
    }
  }
  EXPECT_GT(texts, 500u) << "the lines should not all be malformed";
}

}  // namespace
}  // namespace trireme::data
