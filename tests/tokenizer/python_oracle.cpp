#include "tokenizer/python_oracle.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "base/file.h"
#include "data/tokenizer.h"
#include "data/tokenizer_stream.h"
#include "data/tokenizer_text.h"
#include "support/oracle.h"
#include "tokenizer/varied_text.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

const fs::path kSourceFolder = TRIREME_SOURCE_DIR;

std::string streamed(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
  TextStream stream(tokenizer);
  std::string text;
  for (const std::int32_t id : ids) {
    const std::string part = stream.push(id);
    EXPECT_EQ(valid_utf8_prefix(part), part.size()) << "half a character";
    text += part;
  }
  return text + stream.finish();
}

}  // namespace

bool has_python_oracle() {
  return fs::exists(testing::kOraclePython);
}

void run_oracle(const std::string& arguments) {
  const std::string command = "'" + std::string(testing::kOraclePython) + "' -B '" +
                              (kSourceFolder / "tests/tokenizer/oracle.py").string() + "' " + arguments;
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
}

std::vector<std::vector<std::int32_t>> read_ids(const fs::path& file) {
  const std::string bytes = read_file(file);
  std::vector<std::vector<std::int32_t>> all;
  for (std::size_t at = 0; at < bytes.size();) {
    std::uint32_t count = 0;
    std::memcpy(&count, bytes.data() + at, sizeof count);
    std::vector<std::int32_t>& ids = all.emplace_back(count);
    if (count > 0) std::memcpy(ids.data(), bytes.data() + at + sizeof count, count * sizeof(std::int32_t));
    at += sizeof count + count * sizeof(std::int32_t);
  }
  return all;
}

std::string first_difference(const std::vector<std::int32_t>& ids, const std::vector<std::int32_t>& expected) {
  std::size_t at = 0;
  while (at < ids.size() && at < expected.size() && ids[at] == expected[at]) ++at;
  const auto around = [&](const std::vector<std::int32_t>& all) {
    std::string text;
    for (std::size_t i = at < 3 ? 0 : at - 3; i < std::min(all.size(), at + 4); ++i)
      text += std::to_string(all[i]) + " ";
    return text;
  };
  return "differs at id " + std::to_string(at) + " of " + std::to_string(ids.size()) + ": " + around(ids) + "for " +
         around(expected);
}

void expect_same_as_oracle(const fs::path& folder, const std::vector<std::string>& documents) {
  const auto tokenizer = load_tokenizer(folder.string());
  const auto ids = read_ids(folder / "ids");
  const std::vector<std::string> texts = from_records(read_file(folder / "text"));
  ASSERT_EQ(ids.size(), documents.size());
  ASSERT_EQ(texts.size(), documents.size());
  int different = 0;
  for (std::size_t i = 0; i < documents.size() && different < 3; ++i) {
    const auto ours = tokenizer->encode(documents[i]);
    if (ours != ids[i]) {
      ++different;
      ADD_FAILURE() << folder << ", document " << i << ": " << first_difference(ours, ids[i]) << ", text "
                    << ::testing::PrintToString(documents[i].substr(0, 200));
      continue;
    }
    if (fs::exists(folder / "ids_only")) continue;
    const std::string text = replace_invalid_utf8(tokenizer->decode(ours.data(), ours.size()));
    if (text != texts[i] || streamed(*tokenizer, ours) != text) {
      ++different;
      ADD_FAILURE() << folder << ", document " << i << ": decoded to " << ::testing::PrintToString(text.substr(0, 300))
                    << ", streamed to " << ::testing::PrintToString(streamed(*tokenizer, ours).substr(0, 300))
                    << ", for " << ::testing::PrintToString(texts[i].substr(0, 300));
    }
  }
}

}  // namespace trireme::data
