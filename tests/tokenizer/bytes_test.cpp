#include <gtest/gtest.h>

#include "base/file.h"
#include "data/tokenizer.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace trireme::data {
namespace {

using trireme::testing::expect_error;
using trireme::testing::TemporaryFolder;

// Every byte is its own id, also bytes that are no UTF-8, and comes back unchanged.
TEST(ByteTokenizer, EveryByteIsItsOwnId) {
  const auto tokenizer = load_tokenizer("bytes");
  std::string text;
  for (int byte = 255; byte >= 0; --byte) text.push_back(static_cast<char>(byte));
  const std::vector<std::int32_t> ids = tokenizer->encode(text);
  ASSERT_EQ(ids.size(), 256u);
  for (int i = 0; i < 256; ++i) EXPECT_EQ(ids[i], 255 - i);
  EXPECT_EQ(tokenizer->decode(ids.data(), ids.size()), text);
  EXPECT_EQ(tokenizer->vocabulary(), 257);
  EXPECT_EQ(tokenizer->end_of_document(), 256);
  EXPECT_EQ(tokenizer->kind(), "bytes");
}

// Text cannot spell the end of a document; decoding shows it, or leaves it out.
TEST(ByteTokenizer, EndOfDocumentComesOnlyFromOutside) {
  const auto tokenizer = load_tokenizer("bytes");
  EXPECT_EQ(tokenizer->encode("<|endoftext|>").size(), 13u);
  const std::vector<std::int32_t> ids = {'a', 256, 'b'};
  EXPECT_EQ(tokenizer->decode(ids.data(), ids.size()), "a<|endoftext|>b");
  EXPECT_EQ(tokenizer->decode(ids.data(), ids.size(), true), "ab");
  for (const std::int32_t bad : {-1, 257, 1 << 30}) {
    expect_error(4110, [&] { tokenizer->decode(&bad, 1); });
  }
}

// A saved byte tokenizer is the same one when loaded from its folder, and saving again changes nothing.
TEST(ByteTokenizer, SavedIsLoadedAgain) {
  const TemporaryFolder folder;
  save_tokenizer("bytes", folder.path());
  save_tokenizer("bytes", folder.path());
  const auto loaded = load_tokenizer(folder.path().string());
  EXPECT_EQ(loaded->digest(), load_tokenizer("bytes")->digest());
  EXPECT_EQ(loaded->kind(), "bytes");
  write_file_atomic(folder.path() / "trireme_byte_tokenizer.json", "{}");
  expect_error(4101, [&] { load_tokenizer(folder.path().string()); });
}

// A place without a tokenizer is named, and a folder that holds another tokenizer is not mixed with this one.
TEST(ByteTokenizer, WrongPlacesAreErrors) {
  const TemporaryFolder folder;
  expect_error(4100, [&] { load_tokenizer(folder.path().string()); });
  expect_error(4100, [&] { load_tokenizer((folder.path() / "absent").string()); });
  write_file_atomic(folder.path() / "notes.txt", "x");
  expect_error(4100, [&] { load_tokenizer((folder.path() / "notes.txt").string()); });
  write_file_atomic(folder.path() / "tokenizer.json", "{}");
  expect_error(4102, [&] { save_tokenizer("bytes", folder.path()); });
}

}  // namespace
}  // namespace trireme::data
