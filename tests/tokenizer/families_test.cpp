// Tokenizers with the pipelines of the families that are supported: Llama 2, Mistral, Gemma, Llama 3, Qwen 3, SmolLM2,
// GPT-2. tests/tokenizer/families/ holds a small one of each, and digests of what the Python package made with it of
// 5 MB of varied text. TRIREME_TEST_TOKENIZERS=1 lets the package do that again.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/file.h"
#include "base/hash.h"
#include "data/tokenizer_text.h"
#include "support/temporary_folder.h"
#include "tokenizer/python_oracle.h"
#include "tokenizer/small_tokenizer.h"
#include "tokenizer/varied_text.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kFamiliesSeed = 20250104;
constexpr std::size_t kFamiliesBytes = 5'200'000;
constexpr std::size_t kLiveBytes = 150'000;
constexpr const char* kNames[] = {"gemma", "gpt2", "llama2", "llama3", "mistral", "qwen3", "smollm2"};

const fs::path kFamilies = fs::path(TRIREME_SOURCE_DIR) / "tests/tokenizer/families";

std::string as_words(const std::vector<std::int32_t>& ids) {
  const auto count = static_cast<std::uint32_t>(ids.size());
  std::string bytes(reinterpret_cast<const char*>(&count), sizeof count);
  if (count > 0) bytes.append(reinterpret_cast<const char*>(ids.data()), count * sizeof(std::int32_t));
  return bytes;
}

struct Output {
  std::string ids, text;  // as oracle.py writes them
};

Output encode_all(const Tokenizer& tokenizer, const std::vector<std::string>& documents) {
  Output output;
  for (const std::string& document : documents) {
    const std::vector<std::int32_t> ids = tokenizer.encode(document);
    output.ids += as_words(ids);
    output.text += to_records({replace_invalid_utf8(tokenizer.decode(ids.data(), ids.size()))});
  }
  return output;
}

std::string golden_line(const std::string& documents, const Output& output) {
  return digest(documents) + " " + digest(output.ids) + " " + digest(output.text) + "\n";
}

// On 5 MB of text each family gives the ids and the decoded text that the Python package gave.
TEST(Families, FiveMegabytesGiveTheSameIdsAndText) {
  const std::vector<std::string> documents = varied_documents(kFamiliesSeed, kFamiliesBytes);
  const std::string records = to_records(documents);
  ASSERT_GE(records.size(), kFamiliesBytes);
  for (const char* name : kNames) {
    const auto tokenizer = load_tokenizer((kFamilies / name).string());
    EXPECT_EQ(golden_line(records, encode_all(*tokenizer, documents)), read_file(kFamilies / name / "digests"))
        << name << ": digests of the documents, ids and texts";
  }
}

// The same, document by document, against the package itself.
TEST(Families, ThePackageGivesTheSameIdsAndText) {
  if (!has_python_oracle()) GTEST_SKIP() << "no Python package tokenizers in .deps/oracle (scripts/setup.sh makes it)";
  const bool whole = std::getenv("TRIREME_TEST_TOKENIZERS") != nullptr;
  std::vector<std::string> documents = varied_documents(kFamiliesSeed, whole ? kFamiliesBytes : kLiveBytes);
  const testing::TemporaryFolder folder;
  write_file_atomic(folder.path() / "documents", to_records(documents));
  fs::copy(kFamilies, folder.path() / "families", fs::copy_options::recursive);
  run_oracle("all '" + (folder.path() / "families").string() + "' '" + (folder.path() / "documents").string() + "'");
  for (const char* name : kNames) {
    expect_same_as_oracle(folder.path() / "families" / name, documents);
    if (!whole) continue;
    const Output theirs{read_file(folder.path() / "families" / name / "ids"),
                        read_file(folder.path() / "families" / name / "text")};
    EXPECT_EQ(golden_line(to_records(documents), theirs), read_file(kFamilies / name / "digests")) << name;
  }
}

// What belongs around a text, and which tokens have a part.
TEST(Families, SpecialTokensAreKnown) {
  const auto special = [](const char* name) { return load_tokenizer((kFamilies / name).string())->special(); };
  using Ids = std::vector<std::int32_t>;
  EXPECT_EQ(special("llama2").before, Ids{1});
  EXPECT_EQ(special("llama2").after, Ids{});
  EXPECT_EQ(special("llama2").begin, 1);
  EXPECT_EQ(special("llama2").end, 2);
  EXPECT_EQ(special("gemma").before, Ids{2});
  EXPECT_EQ(special("gemma").padding, 0);
  EXPECT_EQ(special("gpt2").before, Ids{});
  EXPECT_EQ(special("llama3").before.size(), 1u);
  const TokenizerOnDisk disk(small_llama_tokenizer());
  disk.write("tokenizer_config.json",
             R"({"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": false, "add_eos_token": true})");
  EXPECT_EQ(disk.load()->special().before, Ids{});
  EXPECT_EQ(disk.load()->special().after, Ids{2});
}

}  // namespace
}  // namespace trireme::data
