// `trireme data` as a person types it.
#include <gtest/gtest.h>

#include <fstream>

#include "base/file.h"
#include "support/process.h"
#include "support/temporary_folder.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

class DataCommand : public ::testing::Test {
 protected:
  fs::path write(const std::string& name, const std::string& bytes) const {
    fs::path path = folder_.path() / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  ProcessResult data(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {TRIREME_BINARY, "data"});
    return run(arguments);
  }
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  TemporaryFolder folder_;
};

TEST_F(DataCommand, PreparesAndShowsTheTextAgain) {
  std::string text = "First line.\n\x1b[31mA terminal must not obey this.\n";
  for (int i = 0; i < 200; ++i) text += "Line " + std::to_string(i) + " of the text, with \xC3\xA4.\n";
  write("some text.txt", text);
  const ProcessResult prepared =
      data({"prepare", path("some text.txt"), "--output", path("out"), "--held-out", "0.1", "--workers", "2"});
  EXPECT_EQ(prepared.exit_code, 0) << prepared.err;
  EXPECT_NE(prepared.out.find("prepared: "), std::string::npos) << prepared.out;
  const ProcessResult again = data({"prepare", path("some text.txt"), "--output", path("out"), "--held-out", "0.1"});
  EXPECT_NE(again.out.find("is up to date"), std::string::npos) << again.out;

  const ProcessResult train = data({"show", path("out"), "--raw"});
  const ProcessResult heldout = data({"show", path("out"), "--split", "heldout", "--raw"});
  EXPECT_EQ(train.out + heldout.out, text);
  const ProcessResult sample = data({"show", path("out"), "--sequence-length", "20", "--sample", "0", "1"});
  EXPECT_NE(sample.out.find("First line.\n\\x1B[31mA t"), std::string::npos) << sample.out;
  EXPECT_NE(sample.out.find("--- sample 1 of "), std::string::npos) << sample.out;
}

TEST_F(DataCommand, TellsWhichRecordsItLeftOut) {
  const std::string file = write("a.jsonl", "{\"text\": \"good\"}\n{\"text\": 1}\n").string();
  const ProcessResult stopped = data({"prepare", file, "--output", path("out")});
  EXPECT_EQ(stopped.exit_code, 4);
  EXPECT_NE(stopped.err.find("TR4020: " + file + ":2: malformed record: no text field"), std::string::npos)
      << stopped.err;
  EXPECT_FALSE(fs::exists(path("out")));
  const ProcessResult skipped = data({"prepare", file, "--output", path("out"), "--on-malformed", "skip"});
  EXPECT_EQ(skipped.exit_code, 0) << skipped.err;
  EXPECT_NE(skipped.err.find(file + ":2 (byte 17): no text field"), std::string::npos) << skipped.err;
}

TEST_F(DataCommand, RefusesWrongCommandLinesWithTwo) {
  const std::string file = write("a.txt", "text").string();
  const std::vector<std::vector<std::string>> wrong = {
      {},
      {"prepair"},
      {"prepare"},
      {"prepare", file},
      {"prepare", file, "--output", path("out"), "--held-out", "1.5"},
      {"prepare", file, "--output", path("out"), "--on-malformed", "ignore"},
      {"prepare", file, "--output", path("out"), "--workers", "0"},
      {"show"},
      {"show", path("out"), "--split", "test"}};
  for (const auto& arguments : wrong) {
    const ProcessResult result = data(arguments);
    EXPECT_EQ(result.exit_code, 2) << (arguments.empty() ? "" : arguments.back()) << result.err;
    EXPECT_NE(result.err.find("error TR20"), std::string::npos) << result.err;
  }
  EXPECT_EQ(data({"show", path("out")}).exit_code, 4);
  EXPECT_EQ(data({"prepare", "--help"}).exit_code, 0);
  EXPECT_FALSE(fs::exists(path("out")));
}

}  // namespace
}  // namespace trireme::testing
