#include <gtest/gtest.h>

#include <random>

#include "support/expect_error.h"
#include "support/seed.h"
#include "tokenizer/small_tokenizer.h"
#include "tokenizer/varied_text.h"

namespace trireme::data {
namespace {

using nlohmann::json;
using trireme::testing::expect_error;

struct Change {
  const char* pointer;  // into the small tokenizer
  const char* value;    // as JSON
  int code;
  const char* named;  // must stand in the message
};

constexpr const char* kByteLevel = R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true})";

// A pre-tokenizer: these steps, as JSON, one after the other.
json sequence(const std::string& steps) {
  return json::parse(R"({"type": "Sequence", "pretokenizers": [)" + steps + "]}");
}

std::string split(const std::string& regex) {
  return R"({"type": "Split", "pattern": {"Regex": )" + json(regex).dump() +
         R"(}, "behavior": "Isolated", "invert": false})";
}

json with_regex(const std::string& regex) {
  json description = small_tokenizer();
  description["pre_tokenizer"] = sequence(split(regex) + "," + kByteLevel);
  return description;
}

// Everything that a tokenizer.json can say and we do not know, or that cannot be, is an error that names it.
constexpr Change kChanges[] = {
    {"/version", R"("2.0")", 4105, "2.0"},
    {"/surprise", "1", 4105, "surprise"},
    {"/truncation", R"({"max_length": 512})", 4105, "truncation"},
    {"/padding", R"({"strategy": "BatchLongest"})", 4105, "padding"},
    {"/normalizer", R"({"type": "NFKC"})", 4105, "NFKC"},
    {"/normalizer", R"({"type": "Sequence", "normalizers": [{"type": "Lowercase"}]})", 4105, "Lowercase"},
    {"/normalizer", R"("NFC")", 4104, "normalizer"},
    {"/pre_tokenizer", "null", 4105, "pre_tokenizer"},
    {"/pre_tokenizer", R"({"type": "Metaspace"})", 4105, "Metaspace"},
    {"/pre_tokenizer", R"({"type": "Sequence", "pretokenizers": []})", 4105, "ByteLevel"},
    {"/pre_tokenizer/mystery", "true", 4105, "mystery"},
    {"/pre_tokenizer/add_prefix_space", R"("no")", 4104, "add_prefix_space"},
    {"/post_processor", R"({"type": "Mystery"})", 4105, "Mystery"},
    {"/decoder", R"({"type": "WordPiece"})", 4105, "WordPiece"},
    {"/model/type", R"("Unigram")", 4105, "Unigram"},
    {"/model/dropout", "0.1", 4105, "dropout"},
    {"/model/continuing_subword_prefix", R"("##")", 4105, "continuing_subword_prefix"},
    {"/model/end_of_word_suffix", R"("</w>")", 4105, "end_of_word_suffix"},
    {"/model/mystery", "1", 4105, "mystery"},
    {"/model/vocab", "{}", 4106, "empty"},
    {"/model/vocab", "[]", 4104, "vocab"},
    {"/model/vocab/hello", "2147483648", 4106, "2147483648"},
    {"/model/vocab/hello", "18446744073709551615", 4104, "18446744073709551615"},
    {"/model/vocab/hello", "-1", 4106, "-1"},
    {"/model/vocab/hello", "100000000", 4106, "100000000"},
    {"/model/vocab/hello", "1.5", 4104, "1.5"},
    {"/model/vocab/hello", "256", 4106, "256"},
    {"/model/merges", R"("h e")", 4104, "merges"},
    {"/model/merges/0", R"("h e l")", 4107, "h e l"},
    {"/model/merges/0", R"("he")", 4107, "merges[0]"},
    {"/model/merges/0", R"("h z")", 4107, "hz"},
    {"/model/merges/0", R"(" he")", 4107, "merges[0]"},
    {"/model/merges/0", R"(["h", "e"])", 4104, "merges[1]"},
    {"/model/merges/0", "7", 4104, "merges[0]"},
    {"/added_tokens/0/id", "2147483648", 4112, "2147483648"},
    {"/added_tokens/0/id", "300", 4112, "261"},
    {"/added_tokens/0/id", "7", 4112, "261"},
    {"/added_tokens/0/content", R"("")", 4112, "content"},
    {"/added_tokens/0/content", R"("hello")", 4112, "259"},
    {"/added_tokens/0/lstrip", "null", 4104, "lstrip"},
    {"/added_tokens/0/mystery", "1", 4105, "mystery"},
};

json second_token(int id, const char* content) {
  json token = small_tokenizer()["added_tokens"][0];
  token["id"] = id;
  token["content"] = content;
  return token;
}

TEST(HostileTokenizer, EachFieldIsCheckedAndNamed) {
  for (const Change& change : kChanges) {
    json description = small_tokenizer();
    description[json::json_pointer(change.pointer)] = json::parse(change.value);
    const TokenizerOnDisk disk(description);
    const std::string error = expect_error(change.code, [&] { disk.load(); });
    EXPECT_NE(error.find(change.named), std::string::npos) << change.pointer << ": " << error;
    EXPECT_NE(error.find("tokenizer.json"), std::string::npos) << error;
  }
  json description = small_tokenizer();
  description["pre_tokenizer"] = sequence(kByteLevel + ("," + split("a")));
  expect_error(4105, [&] { TokenizerOnDisk(description).load(); });
  for (const int id : {261, 262}) {
    description = small_tokenizer();
    description["added_tokens"].push_back(second_token(id, "<|endoftext|>"));
    expect_error(4112, [&] { TokenizerOnDisk(description).load(); });
  }
}

// Missing bytes: what Hugging Face's do with them is followed only where it is plain.
TEST(HostileTokenizer, MissingBytesNeedAnUnknownTokenOrNothing) {
  json description = small_tokenizer();
  description["model"]["vocab"].erase("z");
  description["model"]["vocab"]["filler"] = 0x7A;
  const TokenizerOnDisk dropping(description);
  EXPECT_EQ(dropping.load()->encode("hezllo"), (std::vector<std::int32_t>{259}));
  description["model"]["unk_token"] = "absent";
  expect_error(4106, [&] { TokenizerOnDisk(description).load(); });
  description["model"]["unk_token"] = "filler";
  const TokenizerOnDisk unknown(description);
  EXPECT_EQ(unknown.load()->encode("zz"), (std::vector<std::int32_t>{0x7A, 0x7A}));
  description["model"]["fuse_unk"] = true;
  expect_error(4105, [&] { TokenizerOnDisk(description).load(); });
  description["model"]["byte_fallback"] = true;
  expect_error(4105, [&] { TokenizerOnDisk(description).load(); });
}

// Text that is not JSON, twice the same key, endless nesting: refused before anything is built from it.
TEST(HostileTokenizer, BadJsonIsAnError) {
  const std::string good = small_tokenizer().dump();
  const std::string nested = std::string(100'000, '[') + std::string(100'000, ']');
  for (const std::string& text :
       {std::string(), std::string("\xFF\xFE"), good.substr(0, good.size() / 2), good + "}",
        "{\"model\": {}, \"model\": {}}" + std::string(), nested, "{\"a\": " + nested + "}"}) {
    expect_error(4103, [&] { TokenizerOnDisk(text).load(); });
  }
}

// Regexes that mean another thing in PCRE2 than in Oniguruma, or are not known to mean the same, are refused; those
// that tokenizers use are taken.
TEST(HostileTokenizer, RegexesAreTakenOrRefusedByWhatIsKnown) {
  const auto load = [](const std::string& regex) { return TokenizerOnDisk(with_regex(regex)).load(); };
  for (
      const char* regex :
      {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
       R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+?)",
       R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{M}]+)", R"(\p{N}{1,3})",
       R"([一-龥\u3040-ゟ゠-ヿ]+)", R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+)", R"(\x{1F600}|\u00e9|\x41)",
       R"(\P{L}|\p{^N}|[\d\S-])", R"((?>a|b)(?<=a)(?<!b)c{2}d{,3}e{2,}f*?)"}) {
    if (std::string_view(regex).find("}+?") != std::string_view::npos) {
      expect_error(4108, [&] { load(regex); });
    } else {
      EXPECT_NO_THROW(load(regex)) << regex;
    }
  }
  for (const char* regex : {"",
                            "\\w+",
                            "\\bx",
                            "\\h",
                            "^a",
                            "a$",
                            "(a",
                            "a)",
                            "[a",
                            "[]a]",
                            "[a[b]]",
                            "[a&&b]",
                            "[[:alpha:]]",
                            "a**",
                            "a{2}+",
                            "a{2}?",
                            "a{3,2}",
                            "a{1001}",
                            "a{",
                            "*a",
                            "(?<name>a)",
                            "(?m:a)",
                            "(?i)a",
                            "(a)\\1",
                            "\\k<a>",
                            "\\p{Greek}",
                            "\\p{L",
                            "\\pL",
                            "\\x80",
                            "\\x{110000}",
                            "\\x{d800}",
                            "\\u12",
                            "\\",
                            "\\G",
                            "(*FAIL)",
                            "(?(1)a)",
                            "(?i:ss)",
                            "(?i:\\p{Lu})",
                            "(?i:\u00e9)",
                            "[z-a]",
                            "[\\s-a]",
                            "[a-\\d]",
                            "\u180E",
                            "[\u1000-\u2000]",
                            "(?<=a+)b"}) {
    SCOPED_TRACE(regex);
    expect_error(4108, [&] { load(regex); });
  }
  const std::string deep = std::string(2'000, '(') + "a" + std::string(2'000, ')');
  expect_error(4108, [&] { load(deep); });
  expect_error(4108, [&] { load(std::string(30'000, 'a')); });
}

// Whatever a file is damaged to: an error of this range, or a tokenizer that works.
TEST(HostileTokenizer, DamagedFilesNeverCrash) {
  const unsigned seed = testing::test_seed();
  SCOPED_TRACE("TRIREME_TEST_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto below = [&](std::size_t bound) { return random() % bound; };
  json description = small_tokenizer();
  description["normalizer"]["type"] = "NFC";
  description["pre_tokenizer"] = sequence(split(R"( ?\p{L}+|\s+(?!\S)|[^\s\p{L}]{1,3})") +
                                          R"(, {"type": "Digits", "individual_digits": true}, )" + kByteLevel);
  description["added_tokens"].push_back(second_token(262, "<word>"));
  const std::string good = description.dump();
  const std::vector<std::string> pieces = {
      "null", "0", "-1",   "4294967296", "1e308",   "\"\"", "[]", "{}", "true", "\\u0000", "\"",          "\\",
      "\xFF", ",", "[[[[", "\\\\p{L}",   "(?:a*)*", "+",    "(",  "[^", "|",    "262",     "\xED\xA0\x80"};
  const std::vector<std::string> documents = varied_documents(3, 3'000);
  int loaded = 0;
  for (int round = 0; round < 1'500; ++round) {
    std::string text = good;
    for (std::size_t change = 1 + below(4); change > 0; --change) {
      // Half the damage goes to the short descriptive parts, which lie around the long vocabulary.
      const std::size_t vocabulary = text.find("\"vocab\"");
      const std::size_t at = below(2) == 0 && vocabulary < text.size() ? below(vocabulary) : below(text.size());
      const std::size_t length = std::min(below(8), text.size() - at);
      switch (below(4)) {
        case 0: text.erase(at, length); break;
        case 1: text.replace(at, length, pieces[below(pieces.size())]); break;
        case 2: text[at] = static_cast<char>(random()); break;
        default: text.insert(at, text.substr(below(text.size()), length)); break;
      }
    }
    const TokenizerOnDisk disk(text);
    try {
      const auto tokenizer = disk.load();
      ++loaded;
      for (const std::string& document : documents) {
        const auto ids = tokenizer->encode(document);
        tokenizer->decode(ids.data(), ids.size());
      }
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() >= 4100 && error.code() <= 4112) << error.what();
    }
  }
  EXPECT_GT(loaded, 20) << "the damage should leave some files readable";
}

}  // namespace
}  // namespace trireme::data
