#include <gtest/gtest.h>

#include "base/file.h"
#include "data/tokenizer_forms.h"
#include "data/tokenizer_text.h"
#include "support/seed.h"
#include "support/temporary_folder.h"
#include "tokenizer/python_oracle.h"
#include "tokenizer/varied_text.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

class RandomOracle : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_python_oracle())
      GTEST_SKIP() << "no Python package tokenizers in .deps/oracle (scripts/setup.sh makes it)";
  }
  std::string at(const std::string& name) const { return "'" + (folder_.path() / name).string() + "'"; }
  testing::TemporaryFolder folder_;
};

// Whatever normalizers, pre-tokenizers, decoders, flags of added tokens and ways of falling back are put together, the
// ids and texts are those of the Python package.
TEST_F(RandomOracle, PipelinesGiveTheSameIdsAndText) {
  const unsigned seed = testing::test_seed();
  SCOPED_TRACE("TRIREME_TEST_SEED=" + std::to_string(seed));
  const std::vector<std::string> documents = varied_documents(seed, 30'000);
  write_file_atomic(folder_.path() / "documents", to_records(documents));
  run_oracle("random " + std::to_string(seed) + " " + at("documents") + " " + at("drawn"));
  run_oracle("all " + at("drawn") + " " + at("documents"));
  int count = 0;
  for (const auto& entry : fs::directory_iterator(folder_.path() / "drawn")) {
    expect_same_as_oracle(entry.path(), documents);
    ++count;
    if (HasFailure()) {
      const std::string text = read_file(entry.path() / "tokenizer.json");
      ADD_FAILURE() << text.substr(0, text.find("\"vocab\""));
      return;
    }
  }
  EXPECT_EQ(count, 24);
}

// Every code point by itself, and random strings of those that mix, in each normal form and in lower case.
TEST_F(RandomOracle, FormsAreThoseOfThePackageForAllCodePoints) {
  const unsigned seed = testing::test_seed();
  SCOPED_TRACE("TRIREME_TEST_SEED=" + std::to_string(seed));
  std::string text;
  std::array<char, 4> bytes;
  for (char32_t c = 1; c < 0x110000; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    if (c >= 0x30000 && c < 0x10FF00 && c % 61 != 0) continue;  // nothing is there
    text.append(bytes.data(), write_utf8(c, bytes.data()));
    text.push_back('\n');
  }
  for (const std::string& document : varied_documents(seed, 300'000)) text += replace_invalid_utf8(document) + "\n";
  write_file_atomic(folder_.path() / "text", text);
  run_oracle("forms " + at("text") + " " + at("forms"));
  const std::vector<std::string> expected = from_records(read_file(folder_.path() / "forms"));
  ASSERT_EQ(expected.size(), 5u);
  for (const UnicodeForm form : {UnicodeForm::nfc, UnicodeForm::nfd, UnicodeForm::nfkc, UnicodeForm::nfkd}) {
    EXPECT_TRUE(UnicodeNormalizer(form).normalize(text) == expected[static_cast<int>(form)])
        << "form " << static_cast<int>(form);
  }
  std::string lower;
  append_lower_case(text, lower);
  EXPECT_TRUE(lower == expected[4]);
}

}  // namespace
}  // namespace trireme::data
