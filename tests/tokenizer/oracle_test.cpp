#include <gtest/gtest.h>

#include "base/file.h"
#include "data/tokenizer.h"
#include "support/temporary_folder.h"
#include "tokenizer/python_oracle.h"
#include "tokenizer/varied_text.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kSeed = 20250101;
constexpr std::size_t kBytes = 5'200'000;
constexpr std::size_t kTrainedBytes = 300'000;  // for each of the tokenizers trained here

const fs::path kSource = TRIREME_SOURCE_DIR;
const fs::path kRealTokenizers = kSource / "../shared/data/tokenizers";

// Words without end, which the varied text has not.
void add_long_words(std::vector<std::string>& documents) {
  std::string letters, han;
  for (const char byte : random_bytes(kSeed, 30'000)) {
    letters.push_back(static_cast<char>('a' + (static_cast<unsigned char>(byte) % 26)));
    han += {'\xE4', static_cast<char>(0xB8 | (byte & 7)), static_cast<char>(0x80 | (byte & 0x3F))};
  }
  for (std::string text : {letters, han, std::string(30'000, 'a'), std::string(30'000, ' ') + "x"}) {
    documents.push_back(std::move(text));
  }
}

class Oracle : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_python_oracle())
      GTEST_SKIP() << "no Python package tokenizers in .deps/oracle (scripts/setup.sh makes it)";
  }

  // Encodes with both; every document must give the same ids.
  void expect_same_ids(const fs::path& tokenizer, std::vector<std::string> documents) {
    add_long_words(documents);
    write_file_atomic(folder_.path() / "documents", to_records(documents));
    run_oracle("encode '" + tokenizer.string() + "' '" + (folder_.path() / "documents").string() + "' '" +
               (folder_.path() / "ids").string() + "'");
    const auto expected = read_ids(folder_.path() / "ids");
    ASSERT_EQ(expected.size(), documents.size());
    const auto ours = load_tokenizer(tokenizer.string());
    int different = 0;
    for (std::size_t i = 0; i < documents.size() && different < 5; ++i) {
      const auto ids = ours->encode(documents[i]);
      if (ids == expected[i]) continue;
      ++different;
      ADD_FAILURE() << tokenizer << ", seed " << kSeed << ", document " << i << ": "
                    << first_difference(ids, expected[i]);
    }
  }

  testing::TemporaryFolder folder_;
};

// The same ids as the Python package tokenizers on more than 5 MB of varied text (issue 3, item 5).
TEST_F(Oracle, Gpt2GivesTheSameIds) {
  if (!fs::exists(kRealTokenizers / "gpt2")) GTEST_SKIP() << "no real tokenizer files beside the source";
  expect_same_ids(kRealTokenizers / "gpt2", varied_documents(kSeed, kBytes));
}

TEST_F(Oracle, Qwen25GivesTheSameIds) {
  if (!fs::exists(kRealTokenizers / "qwen2.5")) GTEST_SKIP() << "no real tokenizer files beside the source";
  expect_same_ids(kRealTokenizers / "qwen2.5/tokenizer.json", varied_documents(kSeed + 1, kBytes));
}

// The same for small tokenizers trained here, one for each feature: pre-tokenizers and their behaviors, prefix space,
// normal form, added tokens with every flag, whole words before merges, vocabularies without some bytes.
TEST_F(Oracle, EveryFeatureGivesTheSameIds) {
  write_file_atomic(folder_.path() / "training", to_records(varied_documents(kSeed + 2, 300'000)));
  run_oracle("train '" + (folder_.path() / "training").string() + "' '" + (folder_.path() / "trained").string() + "'");
  const std::vector<std::string> documents = varied_documents(kSeed + 3, kTrainedBytes);
  int kinds = 0;
  for (const auto& entry : fs::directory_iterator(folder_.path() / "trained")) {
    expect_same_ids(entry.path() / "tokenizer.json", documents);
    ++kinds;
  }
  EXPECT_EQ(kinds, 13);
}

}  // namespace
}  // namespace trireme::data
