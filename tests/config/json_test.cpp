// The reader of JSON: the places of what it reads, and what it refuses in words.
#include "config/json.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace trireme::config {
namespace {

YamlNode read(const std::string& text) {
  return read_json(text, "ds.json");
}

// The text of a value, by the name of its key.
const YamlNode& at_key(const YamlNode& block, const std::string& key) {
  for (const YamlNode::Entry& entry : block.entries) {
    if (entry.key == key) return entry.value;
  }
  throw std::runtime_error("no key " + key);
}

void expect_refused(const std::string& text, int code, const std::string& place, const std::string& words) {
  SCOPED_TRACE(text);
  try {
    read(text);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_EQ(error.place(), place);
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

TEST(Json, ReadsCommentsAndACommaBehindTheLastValue) {
  const YamlNode root = read(
      "# of HJSON\n// of C++\n/* of\n C */ {\"a\": 1, // one\n \"b\": [1, 2,], # two\n \"c\": {\"d\": "
      "\"x#y//z/*\",},\n}\n"
      "/**/ # end");
  ASSERT_EQ(root.entries.size(), 3u);
  EXPECT_EQ(at_key(root, "a").text, "1");
  EXPECT_EQ(at_key(root, "b").items.size(), 2u);
  EXPECT_EQ(at_key(at_key(root, "c"), "d").text, "x#y//z/*");
}

TEST(Json, KeepsNumbersAsTheyWereWritten) {
  for (const std::string number : {"5e8", "-0", "0.5", "1E+2", "2e-05", "12345678901234567890"}) {
    const YamlNode value = at_key(read("{\"a\": " + number + "}"), "a");
    EXPECT_EQ(value.text, number);
    EXPECT_FALSE(value.quoted);
  }
  EXPECT_TRUE(at_key(read("{\"a\": \"5e8\"}"), "a").quoted);
  EXPECT_EQ(at_key(read("{\"a\": null}"), "a").kind, YamlNode::Kind::null);
  EXPECT_EQ(at_key(read("{\"a\": true}"), "a").text, "true");
  for (const std::string wrong : {"01", "-", "+1", "1.", ".5", "1e", "0x10", "1_000", "NaN", "Infinity", "-Infinity"}) {
    expect_refused("{\"a\": " + wrong + "}", 2107, "ds.json:1:7", "not a number of JSON");
  }
}

TEST(Json, ReadsEscapesAndPairsOfSurrogates) {
  const YamlNode root = read(R"({"a": "\"\\\/\b\f\n\r\t", "b": "\u00e9\u20ac", "c": "\ud83d\ude00", "\u0061x": ""})");
  EXPECT_EQ(at_key(root, "a").text, "\"\\/\b\f\n\r\t");
  EXPECT_EQ(at_key(root, "b").text, "\xc3\xa9\xe2\x82\xac");
  EXPECT_EQ(at_key(root, "c").text, "\xf0\x9f\x98\x80");
  EXPECT_EQ(at_key(root, "ax").text, "");
  for (const std::string half : {R"(\ud83d)", R"(\ude00)", R"(\ud83dx)", R"(\ud83d\u0041)", R"(\ud83d\ud83d)",
                                 R"(\ude00\ude00)", R"(\ud83d\ue000)"}) {
    expect_refused("{\"a\": \"" + half + "\"}", 2107, "ds.json:1:8", "surrogate");
  }
  expect_refused(R"({"a": "\x41"})", 2107, "ds.json:1:8", "escape");
  expect_refused(R"({"a": "\u12g4"})", 2107, "ds.json:1:8", "hexadecimal");
  expect_refused("{\"a\": \"x\\", 2107, "ds.json:1:9", "escape");
}

TEST(Json, NamesLineAndColumnOfKeysAndValuesInCharacters) {
  const YamlNode root = read("{\n  \"\xc3\xa9\": 1,  \"b\":\n\t[true,\r\n   {\"c\": null}]}");
  EXPECT_EQ(at("f", root.mark), "f:1:1");
  EXPECT_EQ(at("f", root.entries[0].mark), "f:2:3");
  EXPECT_EQ(at("f", root.entries[0].value.mark), "f:2:8");
  EXPECT_EQ(at("f", root.entries[1].mark), "f:2:12");
  const YamlNode& list = root.entries[1].value;
  EXPECT_EQ(at("f", list.mark), "f:3:2");
  EXPECT_EQ(at("f", list.items[1].entries[0].mark), "f:4:5");
  EXPECT_EQ(at("f", list.items[1].entries[0].value.mark), "f:4:10");
}

TEST(Json, RefusesHjsonBase64AndOtherRootsInWords) {
  expect_refused("{\"a\": text without quotes}", 2108, "ds.json:1:7", "HJSON");
  expect_refused("{a: 1}", 2108, "ds.json:1:2", "HJSON");
  expect_refused("train_batch_size: 32\n", 2108, "ds.json:1:1", "without braces");
  expect_refused("eyJ0cmFpbl9iYXRjaF9zaXplIjogMzJ9\n", 2108, "ds.json:1:1", "base64");
  expect_refused("[1]", 2108, "ds.json:1:1", "not an object");
  expect_refused("", 2107, "ds.json:1:1", "empty");
  expect_refused("# only\n", 2107, "ds.json:2:1", "empty");
}

TEST(Json, RefusesWhatIsNoJsonWithItsPlace) {
  for (const char* word : {"True", "False", "None"}) {
    expect_refused(std::string("{\"a\":\n  ") + word + "}", 2107, "ds.json:2:3", "Python");
  }
  expect_refused("{\"a\": 1\n \"b\": 2}", 2107, "ds.json:2:2", "comma");
  expect_refused("{\"a\": [1 2]}", 2107, "ds.json:1:10", "comma");
  expect_refused("{\"a\" 1}", 2107, "ds.json:1:6", "colon");
  expect_refused("{\"a\": }", 2107, "ds.json:1:7", "value is missing");
  expect_refused("{, \"a\": 1}", 2107, "ds.json:1:2", "key in double quotes");
  expect_refused("{\"a\": 1,,}", 2107, "ds.json:1:9", "key in double quotes");
  expect_refused("{\"a\": 'x'}", 2107, "ds.json:1:7", "single quote");
  expect_refused("{'a': 1}", 2107, "ds.json:1:2", "double quotes");
  expect_refused("{\"a\": \"x\n\"}", 2107, "ds.json:1:7", "does not end");
  expect_refused("{\"a\": 1} {", 2107, "ds.json:1:10", "text after the end");
  expect_refused("{\"a\": [1, ", 2107, "ds.json:1:11", "ends inside");
  expect_refused("{\"a\": /* 1}", 2107, "ds.json:1:7", "comment");
  expect_refused(std::string("{\"a\": \"\0\"}", 10), 2108, "ds.json:1:8", "");
}

TEST(Json, RefusesAKeyTwiceInOneObjectByEitherSpelling) {
  expect_refused("{\"a\": 1,\n \"b\": {\"a\": 2},\n \"\\u0061\": 1}", 2103, "ds.json:3:2", "first in line 1");
  EXPECT_EQ(read("{\"a\": {\"a\": 1}, \"b\": {\"a\": 1}}").entries.size(), 2u);
}

TEST(Json, RefusesDepthAndSizeOverTheLimit) {
  const auto nested = [](int depth) {
    std::string text;
    for (int i = 0; i < depth; ++i) text += "{\"a\": ";
    return text + "1" + std::string(static_cast<std::size_t>(depth), '}');
  };
  EXPECT_EQ(read(nested(kMaxDepth)).entries.size(), 1u);
  expect_refused(nested(kMaxDepth + 1), 2108, "ds.json:1:" + std::to_string(6 * kMaxDepth + 1), "nesting deeper");
  expect_refused("{\"a\": " + std::string(100'000, '[') + "}", 2108, "ds.json:1:22", "nesting deeper");
  const std::string large(kMaxDocumentBytes, ' ');
  expect_refused("{}" + large, 2108, "ds.json:1:1", "");
  EXPECT_TRUE(read("{}" + large.substr(2)).entries.empty());
}

}  // namespace
}  // namespace trireme::config
