#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "base/file.h"
#include "data/tokenizer.h"
#include "temp_folder.h"

namespace trireme::data {
namespace {

int error_code(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code();
  }
  return 0;
}

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
    EXPECT_EQ(error_code([&] { tokenizer->decode(&bad, 1); }), 4110) << bad;
  }
}

// A saved byte tokenizer is the same one when loaded from its folder, and saving again changes nothing.
TEST(ByteTokenizer, SavedIsLoadedAgain) {
  const TempFolder folder;
  save_tokenizer("bytes", folder.path());
  save_tokenizer("bytes", folder.path());
  const auto loaded = load_tokenizer(folder.path().string());
  EXPECT_EQ(loaded->digest(), load_tokenizer("bytes")->digest());
  EXPECT_EQ(loaded->kind(), "bytes");
  write_file_atomic(folder.path() / "trireme_byte_tokenizer.json", "{}");
  EXPECT_EQ(error_code([&] { load_tokenizer(folder.path().string()); }), 4101);
}

// A place without a tokenizer is named, and a folder that holds another tokenizer is not mixed with this one.
TEST(ByteTokenizer, WrongPlacesAreErrors) {
  const TempFolder folder;
  EXPECT_EQ(error_code([&] { load_tokenizer(folder.path().string()); }), 4100);
  EXPECT_EQ(error_code([&] { load_tokenizer((folder.path() / "absent").string()); }), 4100);
  write_file_atomic(folder.path() / "notes.txt", "x");
  EXPECT_EQ(error_code([&] { load_tokenizer((folder.path() / "notes.txt").string()); }), 4100);
  write_file_atomic(folder.path() / "tokenizer.json", "{}");
  EXPECT_EQ(error_code([&] { save_tokenizer("bytes", folder.path()); }), 4102);
}

}  // namespace
}  // namespace trireme::data
