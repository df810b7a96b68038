// Every slip of one letter in a known key is an error that names the key.
#include "config/schema.h"
#include "config/suggest.h"
#include "misspellings.h"

namespace trireme::config {
namespace {

std::string in_block(const std::string& block, const std::string& separator, const std::string& rest) {
  return block.empty() ? rest : block + separator + rest;
}

std::string quoted_line(const std::string& key) {
  return "\"" + key + "\": 1\n";
}

void expect_named(const Error& error, int code, const std::string& misspelt, std::string_view key) {
  EXPECT_EQ(error.code(), code) << error.what();
  EXPECT_NE(error.remedy().find(key), std::string::npos) << misspelt << " should be " << key << ": " << error.what();
}

TEST(Misspellings, OfAKeyInTheFileNameTheKey) {
  int count = 0;
  for (const Key& key : keys()) {
    if (key.tier != Tier::supported) continue;
    const std::string block(block_of(key.name));
    for (const std::string& leaf : misspellings(std::string(leaf_of(key.name)))) {
      const std::string name = in_block(block, ".", leaf);
      if (find_key(name).key != nullptr || is_block(name)) continue;
      const auto error = error_of(in_block(block, ":\n  ", quoted_line(leaf)));
      ASSERT_TRUE(error);
      expect_named(*error, 2101, name, key.name);
      EXPECT_EQ(error->place(), block.empty() ? "run.yaml:1:1" : "run.yaml:2:3");
      ++count;
    }
  }
  EXPECT_GT(count, 3000);
}

TEST(Misspellings, OfAKeyOnTheCommandLineNameTheKey) {
  for (const Key& key : keys()) {
    if (key.tier != Tier::supported) continue;
    for (const std::string& name : misspellings(std::string(key.name))) {
      if (find_key(name).key != nullptr || is_block(name)) continue;
      const auto error = error_of(kSmall, {name + "=1"});
      ASSERT_TRUE(error);
      expect_named(*error, 2101, name, key.name);
    }
  }
}

TEST(Misspellings, OfABlockNameTheBlock) {
  for (const std::string_view block : block_names()) {
    for (const std::string& name : misspellings(std::string(block))) {
      if (find_key(name).key != nullptr || is_block(name)) continue;
      const auto error = error_of("\"" + name + "\":\n  x: 1\n");
      ASSERT_TRUE(error);
      expect_named(*error, 2101, name, block);
    }
  }
}

TEST(EditDistance, CountsInsertionsDeletionsReplacementsAndSwaps) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("abc", "abc"), 0);
  EXPECT_EQ(edit_distance("abc", "acb"), 1);
  EXPECT_EQ(edit_distance("abcd", "badc"), 2);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance(std::string(5000, 'a'), "a"), 95);  // long words are cut
}

}  // namespace
}  // namespace trireme::config
