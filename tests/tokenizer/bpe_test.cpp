#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>

#include "base/file.h"
#include "data/tokenizer_stream.h"
#include "data/tokenizer_text.h"
#include "support/expect_error.h"
#include "support/seed.h"
#include "tokenizer/small_tokenizer.h"
#include "tokenizer/varied_text.h"

namespace trireme::data {
namespace {

using Ids = std::vector<std::int32_t>;
using trireme::testing::expect_error;

nlohmann::json split_step(const std::string& regex) {
  nlohmann::json step = nlohmann::json::parse(R"({"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {}, "behavior": "Isolated", "invert": false},
      {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]})");
  step["pretokenizers"][0]["pattern"]["Regex"] = regex;
  return step;
}

// Merges apply by rank inside words; special tokens in the text become their ids; decode gives the text back.
TEST(Bpe, MergesAndDecodes) {
  const TokenizerOnDisk disk(small_tokenizer());
  const auto tokenizer = disk.load();
  const std::string text = "hello hello<|endoftext|>hell\xC3\xA9";
  const Ids ids = tokenizer->encode(text);
  EXPECT_EQ(ids, (Ids{259, 260, 261, 258, 0xC3, 0xA9}));
  EXPECT_EQ(tokenizer->decode(ids.data(), ids.size()), text);
  EXPECT_EQ(tokenizer->decode(ids.data(), ids.size(), true), "hello hellohell\xC3\xA9");
  EXPECT_EQ(tokenizer->vocabulary(), 262);
  EXPECT_EQ(tokenizer->end_of_document(), 261);
  EXPECT_EQ(tokenizer->kind(), "bpe");
  for (const std::int32_t bad : {-1, 262, 1 << 30}) expect_error(4110, [&] { tokenizer->decode(&bad, 1); });
}

// A golden file, so that a machine without the Python package still checks something: ids that it gave for varied text
// with a small tokenizer (NFC, a split regex, added tokens of every kind, whole words before merges).
TEST(Bpe, GivesTheIdsOfTheGoldenFile) {
  const std::filesystem::path golden = std::filesystem::path(TRIREME_SOURCE_DIR) / "tests/tokenizer/golden";
  const auto tokenizer = load_tokenizer(golden.string());
  const std::vector<std::string> documents = from_records(read_file(golden / "documents"));
  const nlohmann::json expected = nlohmann::json::parse(read_file(golden / "ids.json"));
  ASSERT_GT(documents.size(), 6u);
  ASSERT_EQ(documents.size(), expected.size());
  for (std::size_t i = 0; i < documents.size(); ++i) {
    EXPECT_EQ(tokenizer->encode(documents[i]), expected[i].get<Ids>()) << "document " << i;
  }
}

// Valid text comes back byte for byte, where the normal form leaves it alone.
TEST(Bpe, DecodesToTheSameText) {
  const TokenizerOnDisk disk(small_tokenizer());
  const auto tokenizer = disk.load();
  for (const std::string& document : varied_documents(7, 200'000)) {
    const std::string text = replace_invalid_utf8(document);
    const Ids ids = tokenizer->encode(text);
    ASSERT_EQ(tokenizer->decode(ids.data(), ids.size()), text);
    ASSERT_EQ(tokenizer->encode(document), ids);
  }
}

// Bytes that are no UTF-8 become U+FFFD, one for each maximal part, as Python decodes them.
TEST(Bpe, InvalidBytesBecomeReplacementCharacters) {
  const std::string mark = "\xEF\xBF\xBD";
  const auto marks = [&](int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += mark;
    return text;
  };
  EXPECT_EQ(replace_invalid_utf8("a\x80z"), "a" + mark + "z");
  EXPECT_EQ(replace_invalid_utf8("\xE2\x82"), mark);
  EXPECT_EQ(replace_invalid_utf8("\xE2\x82g"), mark + "g");
  EXPECT_EQ(replace_invalid_utf8("\xE0\x80\x80"), marks(3));
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), marks(3));
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x98\xF0\x9F\x98\x80"), mark + "\xF0\x9F\x98\x80");
  EXPECT_EQ(replace_invalid_utf8("\xF4\x90\x80\x80\xFF"), marks(5));
  EXPECT_EQ(replace_invalid_utf8("\xC0\xAF"), marks(2));
}

// A word of megabytes takes time about in proportion: with quadratic merging this would not end within the time limit.
TEST(Bpe, LongWordsAreNotQuadratic) {
  const TokenizerOnDisk disk(small_tokenizer());
  const auto tokenizer = disk.load();
  std::string word;
  for (int i = 0; i < 400'000; ++i) word += i % 7 == 0 ? "helo" : "hello";
  const Ids ids = tokenizer->encode(word);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 259), 400'000 - (400'000 + 6) / 7);
  EXPECT_EQ(tokenizer->decode(ids.data(), ids.size()), word);

  auto nfc = small_tokenizer();
  nfc["normalizer"]["type"] = "NFC";
  const TokenizerOnDisk nfc_disk(nfc);
  std::string marks = "a";
  for (int i = 0; i < 200'000; ++i) marks += i % 2 == 0 ? "\u0301" : "\u0323";  // one run, to be put in order
  const auto normalizing = nfc_disk.load();
  const Ids mark_ids = normalizing->encode(marks);
  EXPECT_EQ(normalizing->decode(mark_ids.data(), 5), "\u1EA1\u0323");
}

// Llama-2's way: a space before the text that decoding takes away again, unknown characters as bytes, special tokens.
TEST(Bpe, CharactersFallBackToBytes) {
  const TokenizerOnDisk disk(small_llama_tokenizer());
  disk.write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  const auto tokenizer = disk.load();
  const std::string text = "hello  hellx\u00E9</s>o";
  const Ids ids = tokenizer->encode(text);
  EXPECT_EQ(ids, (Ids{268, 259, 259, 266, 3 + 'x', 3 + 0xC3, 3 + 0xA9, 2, 259, 263}));
  EXPECT_EQ(tokenizer->decode(ids.data(), ids.size()), "hello  hellx\u00E9</s> o");
  EXPECT_EQ(tokenizer->decode(ids.data(), ids.size(), true), "hello  hellx\u00E9 o");
  EXPECT_EQ(tokenizer->end_of_document(), 2);
}

// A document without a space is one word: a line of megabytes takes time about in proportion.
TEST(Bpe, LongLinesOfCharactersAreNotQuadratic) {
  nlohmann::json description = small_llama_tokenizer();
  nlohmann::json& model = description["model"];
  std::string token = "a";
  model["vocab"][token] = 269;
  for (int i = 0; i < 5; ++i) {
    model["merges"].push_back(token + " " + token);
    token += token;
    model["vocab"][token] = 270 + i;
  }
  const TokenizerOnDisk disk(description);
  disk.write("tokenizer_config.json", R"({"eos_token": "</s>"})");
  const auto tokenizer = disk.load();
  const std::string line(1'000'000, 'a');
  const Ids ids = tokenizer->encode(line);
  EXPECT_EQ(ids.size(), 1 + 1'000'000 / 32);
  EXPECT_EQ(tokenizer->decode(ids.data(), ids.size()), line);
}

// Text comes out as whole characters, and all of it is what decode gives; a prompt before it decides about its space.
TEST(Bpe, StreamedTextIsWholeCharacters) {
  const TokenizerOnDisk disk(small_llama_tokenizer());
  disk.write("tokenizer_config.json", R"({"eos_token": "</s>"})");
  const auto tokenizer = disk.load();
  TextStream stream(*tokenizer);
  EXPECT_EQ(stream.push(268), "hello");
  EXPECT_EQ(stream.push(268), " hello");
  EXPECT_EQ(stream.push(3 + 0xF0), "");
  EXPECT_EQ(stream.push(3 + 0x9F), "");
  EXPECT_EQ(stream.push(3 + 0x98), "");
  EXPECT_EQ(stream.push(3 + 0x80), "\U0001F600");
  EXPECT_EQ(stream.push(3 + 0xC3), "");
  EXPECT_EQ(stream.push(263), "\uFFFDo") << "what never becomes a character is shown as such";
  EXPECT_EQ(stream.push(3 + 0xE2), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
  EXPECT_EQ(stream.push(268), "hello") << "a new text";
  stream.finish();
  const Ids prompt = {1, 268};
  stream.pass_over(prompt);
  EXPECT_EQ(stream.push(268), " hello");
  expect_error(4110, [&] { stream.push(-1); });

  const unsigned seed = testing::test_seed();
  SCOPED_TRACE("TRIREME_TEST_SEED=" + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    TextStream drawn(*tokenizer);
    Ids ids;
    std::string text;
    for (int i = 0; i < 40; ++i) {
      ids.push_back(static_cast<std::int32_t>(random() % 269));
      const std::string part = drawn.push(ids.back());
      ASSERT_EQ(valid_utf8_prefix(part), part.size());
      text += part;
    }
    ASSERT_EQ(text + drawn.finish(), replace_invalid_utf8(tokenizer->decode(ids.data(), ids.size())));
  }
}

// All threads share one tokenizer and get the ids that one thread gets.
TEST(Bpe, IsThreadSafe) {
  auto description = small_tokenizer();
  description["normalizer"]["type"] = "NFC";
  const TokenizerOnDisk disk(description);
  const auto tokenizer = disk.load();
  const std::vector<std::string> documents = varied_documents(11, 60'000);
  std::vector<Ids> expected;
  for (const std::string& document : documents) expected.push_back(disk.load()->encode(document));
  std::vector<int> wrong(4);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = 0; i < documents.size(); ++i) {
        const std::size_t at = (i * (t + 1)) % documents.size();
        if (tokenizer->encode(documents[at]) != expected[at]) ++wrong[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

// The digest changes with everything that decides the ids, and with nothing else.
TEST(Bpe, DigestIsOfWhatDecidesTheIds) {
  const auto digest = [](const nlohmann::json& description) { return TokenizerOnDisk(description).load()->digest(); };
  const nlohmann::json base = small_tokenizer();
  const auto changed = [&](const std::string& pointer, const nlohmann::json& value) {
    nlohmann::json copy = base;
    copy[nlohmann::json::json_pointer(pointer)] = value;
    return digest(copy);
  };
  const std::string same = digest(base);
  EXPECT_EQ(TokenizerOnDisk(base.dump(4)).load()->digest(), same);
  EXPECT_EQ(changed("/post_processor/type", "ByteLevel"), same);
  EXPECT_EQ(changed("/decoder", nullptr), same);
  EXPECT_NE(changed("/normalizer/type", "NFC"), same);
  EXPECT_NE(changed("/pre_tokenizer/add_prefix_space", true), same);
  EXPECT_NE(changed("/pre_tokenizer", split_step("\\s+")), same);
  EXPECT_NE(changed("/model/ignore_merges", true), same);
  EXPECT_NE(changed("/model/merges/0", "l l"), same);
  EXPECT_NE(changed("/added_tokens/0/lstrip", true), same);
}

// A saved tokenizer is the same one, whichever of the two forms it came in; both forms of GPT-2's kind agree.
TEST(Bpe, SavedIsLoadedAgain) {
  const TokenizerOnDisk disk(small_tokenizer());
  const testing::TemporaryFolder copy;
  save_tokenizer((disk.folder() / "tokenizer.json").string(), copy.path());
  EXPECT_EQ(load_tokenizer(copy.path().string())->digest(), disk.load()->digest());
  expect_error(4102, [&] { save_tokenizer("bytes", copy.path()); });

  nlohmann::json same = small_tokenizer();
  nlohmann::json& vocabulary = same["model"]["vocab"];
  vocabulary["<|endoftext|>"] = 261;
  std::string merges = "#version: 0.2\r\n";
  for (const std::string merge : same["model"]["merges"]) merges += merge + "\r\n";
  const TokenizerOnDisk files(vocabulary);
  files.write("merges.txt", merges);
  std::filesystem::rename(files.folder() / "tokenizer.json", files.folder() / "vocab.json");
  const TokenizerOnDisk same_disk(same);
  EXPECT_EQ(files.load()->digest(), same_disk.load()->digest());
  const testing::TemporaryFolder files_copy;
  save_tokenizer(files.folder().string(), files_copy.path());
  EXPECT_EQ(load_tokenizer(files_copy.path().string())->digest(), files.load()->digest());
  files.write("chat_template.jinja", "{{ messages }}");
  save_tokenizer(files.folder().string(), files_copy.path());
  EXPECT_EQ(read_file(files_copy.path() / "chat_template.jinja"), "{{ messages }}") << "kept for others";
  files.write("tokenizer_config.json", R"({"tokenizer_class": "Qwen2Tokenizer"})");
  expect_error(4105, [&] { files.load(); });
  files.write("tokenizer_config.json", R"({"tokenizer_class": "GPT2Tokenizer"})");
  files.write("added_tokens.json", R"({"<pad>": 262})");
  EXPECT_EQ(files.load()->encode("<pad>"), Ids{262});
  files.write("added_tokens.json", R"({"<pad>": 263})");
  expect_error(4112, [&] { files.load(); });
}

// The end of a document: <|endoftext|>, else eos_token of tokenizer_config.json, else an error that says so.
TEST(Bpe, EndOfDocumentIsFoundOrMissed) {
  nlohmann::json description = small_tokenizer();
  description["added_tokens"][0]["content"] = "</s>";
  const TokenizerOnDisk disk(description);
  EXPECT_NE(expect_error(4109, [&] { disk.load(); }).find("eos_token"), std::string::npos);
  disk.write("tokenizer_config.json", R"({"eos_token": {"content": "</s>"}})");
  EXPECT_EQ(disk.load()->end_of_document(), 261);
  disk.write("tokenizer_config.json", R"({"eos_token": "hell"})");
  EXPECT_EQ(disk.load()->end_of_document(), 258);
  disk.write("tokenizer_config.json", R"({"eos_token": "</absent>"})");
  EXPECT_NE(expect_error(4109, [&] { disk.load(); }).find("</absent>"), std::string::npos);
}

// A regex that tries exponentially many ways is stopped, with an error that names it.
TEST(Bpe, CatastrophicRegexIsAnError) {
  for (const char* regex : {"(?:a*)*[bc]", "(?:a|a)*[bc]", "(?:(?:a+)+)+[bc]"}) {
    nlohmann::json description = small_tokenizer();
    description["pre_tokenizer"] = split_step(regex);
    const TokenizerOnDisk disk(description);
    const auto tokenizer = disk.load();
    EXPECT_EQ(tokenizer->encode("hello"), Ids{259}) << regex;
    const std::string error = expect_error(4111, [&] { tokenizer->encode(std::string(5'000, 'a')); });
    EXPECT_NE(error.find(regex), std::string::npos) << error;
    EXPECT_EQ(tokenizer->encode("hello"), Ids{259}) << "usable after the error";
  }
}

}  // namespace
}  // namespace trireme::data
