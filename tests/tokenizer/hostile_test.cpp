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
    {"/truncation", "512", 4104, "truncation"},
    {"/padding", R"("BatchLongest")", 4104, "padding"},
    {"/normalizer", R"({"type": "Precompiled", "precompiled_charsmap": "AA=="})", 4105, "Precompiled"},
    {"/normalizer", R"({"type": "Sequence", "normalizers": [{"type": "BertNormalizer"}]})", 4105, "BertNormalizer"},
    {"/normalizer", R"({"type": "NFKC", "mystery": 1})", 4105, "mystery"},
    {"/normalizer", R"({"type": "Strip", "strip_left": true})", 4104, "strip_right"},
    {"/normalizer", R"({"type": "Prepend", "prepend": 1})", 4104, "prepend"},
    {"/normalizer", R"({"type": "Replace", "pattern": {"String": ""}, "content": "x"})", 4105, "empty pattern"},
    {"/normalizer", R"({"type": "Replace", "pattern": " ", "content": "x"})", 4104, "pattern"},
    {"/normalizer", R"({"type": "Replace", "pattern": {"Regex": "(a)b"}, "content": "$1"})", 4105, "$1"},
    {"/normalizer", R"({"type": "Replace", "pattern": {"Regex": "a*"}, "content": "b"})", 4108, "empty text"},
    {"/normalizer", R"({"type": "Replace", "pattern": {"Regex": "(a"}, "content": ""})", 4108, "not closed"},
    {"/normalizer", R"("NFC")", 4104, "normalizer"},
    {"/pre_tokenizer", "null", 4105, "ByteLevel pre-tokenizer"},
    {"/pre_tokenizer", R"({"type": "Metaspace"})", 4104, "replacement"},
    {"/pre_tokenizer", R"({"type": "Metaspace", "replacement": "ab"})", 4104, "one character"},
    {"/pre_tokenizer", R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "last"})", 4105, "last"},
    {"/pre_tokenizer", R"({"type": "Sequence", "pretokenizers": [{"type": "Metaspace", "replacement": "_"},
        {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first"}]})",
     4105, "another Metaspace"},
    {"/pre_tokenizer", R"({"type": "BertPreTokenizer"})", 4105, "BertPreTokenizer"},
    {"/pre_tokenizer", R"({"type": "Punctuation", "behavior": "Eaten"})", 4105, "Eaten"},
    {"/pre_tokenizer", R"({"type": "Sequence", "pretokenizers": []})", 4105, "ByteLevel"},
    {"/pre_tokenizer/mystery", "true", 4105, "mystery"},
    {"/pre_tokenizer/add_prefix_space", R"("no")", 4104, "add_prefix_space"},
    {"/post_processor", R"({"type": "Mystery"})", 4105, "Mystery"},
    {"/post_processor", R"({"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": {}})", 4113,
     "no place for the text"},
    {"/post_processor", R"({"type": "RobertaProcessing", "sep": ["</s>", 900], "cls": ["<s>", 0]})", 4113, "900"},
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
  EXPECT_EQ(TokenizerOnDisk(description).load()->encode("zz"), (std::vector<std::int32_t>{0x7A}));
  description["model"]["byte_fallback"] = true;
  expect_error(4105, [&] { TokenizerOnDisk(description).load(); });
}

// The same for a tokenizer of characters, with its files around it.
constexpr Change kLlamaChanges[] = {
    {"/model/unk_token", R"("<missing>")", 4106, "<missing>"},
    {"/model/vocab/<0x41>", "4194304", 4106, "4194304"},
    {"/model/merges/0", R"("h l")", 4107, "\"hl\""},
    {"/decoder", R"({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true})", 4105, "ByteLevel"},
    {"/decoder", R"({"type": "CTC"})", 4105, "CTC"},
    {"/decoder/decoders/0/pattern", R"({"Regex": "a+"})", 4105, "Regex"},
    {"/decoder/decoders/1", R"({"type": "Fuse"})", 4105, "second Strip"},
    {"/decoder/decoders/2", R"({"type": "Replace", "pattern": {"String": "a"}, "content": ""})", 4105, "Replace"},
    {"/decoder/decoders/0/content",
     R"("01234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789")",
     4105, "very much longer"},
    {"/decoder/decoders/3/stop", "1", 4105, "end of a text"},
    {"/decoder/decoders/3/start", "-1", 4105, "-1"},
    {"/decoder/decoders/3/content", R"("ab")", 4104, "one character"},
    {"/post_processor/single/0/SpecialToken/id", R"("<bos>")", 4113, "<bos>"},
    {"/post_processor/special_tokens/<s>/ids", "[4000]", 4113, "4000"},
    {"/post_processor/single/0", R"({"Sequence": {"id": "A", "type_id": 0}})", 4105, "repeats the text"},
    {"/normalizer/normalizers/0/type", R"("Nmt")", 4105, "Nmt"},
    {"/added_tokens/1/id", "3", 4112, "<s>"},
    {"/added_tokens/1/content", R"("</s>")", 4112, "</s>"},
};

TEST(HostileTokenizer, EachFieldOfALlamaTokenizerIsCheckedAndNamed) {
  for (const Change& change : kLlamaChanges) {
    json description = small_llama_tokenizer();
    if (std::string_view(change.named) == "<missing>") description["model"]["byte_fallback"] = false;
    if (std::string_view(change.named) == "second Strip") {
      description["decoder"]["decoders"].push_back(description["decoder"]["decoders"][3]);
    }
    description[json::json_pointer(change.pointer)] = json::parse(change.value);
    const TokenizerOnDisk disk(description);
    disk.write("tokenizer_config.json", R"({"eos_token": "</s>"})");
    const std::string error = expect_error(change.code, [&] { disk.load(); });
    EXPECT_NE(error.find(change.named), std::string::npos) << change.pointer << ": " << error;
    EXPECT_NE(error.find("tokenizer.json"), std::string::npos) << error;
  }
}

// Files beside tokenizer.json that do not belong to it.
TEST(HostileTokenizer, ConfigurationsOfAnotherTokenizerAreErrors) {
  const TokenizerOnDisk disk(small_llama_tokenizer());
  const auto with_config = [&](const std::string& text) {
    disk.write("tokenizer_config.json", text);
    return disk.load();
  };
  const std::string flags = R"("lstrip": false, "normalized": false, "rstrip": false, "single_word": false, )";
  const auto listing = [&](const std::string& id, const std::string& content) {
    return R"({"eos_token": "</s>", "added_tokens_decoder": {")" + id + R"(": {"content": ")" + content + "\", " +
           flags + R"("special": true}}})";
  };
  EXPECT_NO_THROW(with_config(listing("1", "<s>")));
  EXPECT_NE(expect_error(4112, [&] { with_config(listing("4000", "<pad>")); }).find("<pad>"), std::string::npos);
  EXPECT_NE(expect_error(4112, [&] { with_config(listing("2", "<s>")); }).find("gives it 1"), std::string::npos);
  expect_error(4112, [&] { with_config(listing("one", "<s>")); });
  expect_error(4109, [&] { with_config("{}"); });
  expect_error(4109, [&] { with_config(R"({"eos_token": "<eos>"})"); });
  expect_error(4104, [&] { with_config(R"({"eos_token": "</s>", "add_bos_token": "yes"})"); });
  expect_error(4104, [&] { with_config(R"({"eos_token": ["</s>"]})"); });
  expect_error(4103, [&] { with_config("{"); });
  expect_error(4104, [&] { with_config("[]"); });
  // Each as transformers takes it: a missing pad token is no pad token.
  EXPECT_EQ(with_config(R"({"eos_token": "</s>", "pad_token": "[PAD]"})")->special().padding, std::nullopt);
}

// A normalizer that makes a text very much longer is stopped.
TEST(HostileTokenizer, TextsDoNotGrowWithoutMeasure) {
  json description = small_llama_tokenizer();
  json step = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aaaaaaaaaa"}};
  for (int i = 0; i < 20; ++i) description["normalizer"]["normalizers"].push_back(step);
  const TokenizerOnDisk disk(description);
  disk.write("tokenizer_config.json", R"({"eos_token": "</s>"})");
  const auto tokenizer = disk.load();
  EXPECT_FALSE(tokenizer->encode("hello").empty());
  expect_error(4111, [&] { tokenizer->encode("banana"); });
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

class Damage {
 public:
  explicit Damage(unsigned seed) : random_(seed) {}
  std::size_t below(std::size_t bound) { return random_() % bound; }

  // Half the damage goes to the short descriptive parts, which lie around the long vocabulary.
  std::string apply(std::string text) {
    static const std::vector<std::string> pieces = {
        "null", "0", "-1",   "4294967296", "1e308",   "\"\"", "[]", "{}", "true", "\\u0000", "\"",          "\\",
        "\xFF", ",", "[[[[", "\\\\p{L}",   "(?:a*)*", "+",    "(",  "[^", "|",    "262",     "\xED\xA0\x80"};
    for (std::size_t change = 1 + below(4); change > 0; --change) {
      const std::size_t vocabulary = text.find("\"vocab\"");
      const std::size_t at = below(2) == 0 && vocabulary < text.size() ? below(vocabulary) : below(text.size());
      const std::size_t length = std::min(below(8), text.size() - at);
      switch (below(4)) {
        case 0: text.erase(at, length); break;
        case 1: text.replace(at, length, pieces[below(pieces.size())]); break;
        case 2: text[at] = static_cast<char>(random_()); break;
        default: text.insert(at, text.substr(below(text.size()), length)); break;
      }
    }
    return text;
  }

 private:
  std::mt19937_64 random_;
};

// Whatever a file is damaged to: an error of this range, or a tokenizer that works.
void expect_errors_or_tokenizers(const std::string& good, int rounds) {
  const unsigned seed = testing::test_seed();
  SCOPED_TRACE("TRIREME_TEST_SEED=" + std::to_string(seed));
  Damage damage(seed);
  const std::vector<std::string> documents = varied_documents(3, 3'000);
  const TokenizerOnDisk disk(good);
  disk.write("tokenizer_config.json", R"({"eos_token": "</s>", "add_bos_token": true})");
  int loaded = 0;
  for (int round = 0; round < rounds; ++round) {
    disk.write("tokenizer.json", damage.apply(good));
    try {
      const auto tokenizer = disk.load();
      ++loaded;
      for (const std::string& document : documents) {
        const auto ids = tokenizer->encode(document);
        tokenizer->decode(ids.data(), ids.size());
      }
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() >= 4100 && error.code() <= 4113) << error.what();
    }
  }
  EXPECT_GT(loaded, rounds / 80) << "the damage should leave some files readable";
}

TEST(HostileTokenizer, DamagedFilesNeverCrash) {
  json description = small_tokenizer();
  description["normalizer"]["type"] = "NFC";
  description["pre_tokenizer"] = sequence(split(R"( ?\p{L}+|\s+(?!\S)|[^\s\p{L}]{1,3})") +
                                          R"(, {"type": "Digits", "individual_digits": true}, )" + kByteLevel);
  description["added_tokens"].push_back(second_token(262, "<word>"));
  expect_errors_or_tokenizers(description.dump(), 1'000);
}

TEST(HostileTokenizer, DamagedLlamaFilesNeverCrash) {
  json description = small_llama_tokenizer();
  for (const char* step : {R"({"type": "NFKD"})", R"({"type": "Strip", "strip_left": true, "strip_right": true})"}) {
    description["normalizer"]["normalizers"].push_back(json::parse(step));
  }
  description["pre_tokenizer"] = sequence(R"({"type": "Punctuation", "behavior": "Contiguous"}, )"
                                          R"({"type": "Metaspace", "replacement": "\u2581", "split": true})");
  expect_errors_or_tokenizers(description.dump(), 1'000);
}

}  // namespace
}  // namespace trireme::data
