#include "data/manifest.h"

#include <functional>

#include "base/hash.h"
#include "data/dataset.h"
#include "prepare_support.h"
#include "support/seed.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

// The same text with its self-digest made right again: an attacker's, not a broken disk's.
std::string resealed(std::string text) {
  const std::string prefix = "{\n \"digest\": \"";
  EXPECT_EQ(text.substr(0, prefix.size()), prefix);
  text.replace(prefix.size(), 32, std::string(32, '0'));
  return text.replace(prefix.size(), 32, digest(text));
}

class Manifests : public ::testing::Test {
 protected:
  void SetUp() override {
    write(folder_ / "in/a.jsonl", json_line("one") + json_line("two") + "bad\n" + json_line("three"));
    PrepareOptions options;
    options.inputs = {folder_ / "in"};
    options.output = folder_ / "out";
    options.held_out = 0.4;
    options.skip_malformed = true;
    prepare(options);
    text_ = read_file(folder_ / "out/manifest.json");
  }
  int code_of_opening(const std::string& manifest) const {
    write(folder_ / "out/manifest.json", manifest);
    return error_code([&] {
      for (const char* split : {"train", "heldout"}) {
        const Dataset dataset(folder_ / "out", split, {2, true});
        std::int32_t rows[8];
        for (std::uint64_t i = 0; i < dataset.num_samples(); ++i) dataset.read(i, {rows, rows + 2, rows + 4, rows + 6});
      }
    });
  }
  std::string with(const std::string& from, const std::string& to) const {
    const std::size_t at = text_.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return std::string(text_).replace(at, from.size(), to);
  }
  TempFolder folder_;
  std::string text_;
};

TEST_F(Manifests, ComeBackAsTheyWereWritten) {
  EXPECT_EQ(to_text(read_manifest(folder_ / "out")), text_);
  EXPECT_EQ(code_of_opening(text_), 0);
}

TEST_F(Manifests, AnEditWithoutTheDigestIsFound) {
  EXPECT_EQ(code_of_opening(with("\"vocabulary\": 2", "\"vocabulary\": 3")), 4032);
}

TEST_F(Manifests, HostileFieldsAreRefusedEvenWithARightDigest) {
  const std::vector<std::pair<std::string, std::string>> edits = {
      {"\"format\": \"trireme-data\"", "\"format\": \"other\""},
      {"\"file\": \"train-00000.tokens\"", "\"file\": \"../../etc/passwd\""},
      {"\"file\": \"train-00000.tokens\"", "\"file\": \"/etc/passwd\""},
      {"\"file\": \"train.documents\"", "\"file\": \"train-00000.tokens\""},
      {"\"vocabulary\": ", "\"vocabulary\": 99999999999"},
      {"\"vocabulary\": ", "\"vocabulary\": -"},
      {"\"vocabulary\": ", "\"vocabulary\": 1.5e"},
      {"\"end_of_document\": ", "\"end_of_document\": 9"},
      {"\"tokens\": ", "\"tokens\": 1"},
      {"\"tokens\": ", "\"tokens\": 18446744073709551615"},
      {"\"documents\": ", "\"documents\": 99999999999999"},
      {"\"shards\": [", "\"shards\": [7, "},
      {"\"shards\": [", "\"shards\": [{}, "},
      {"\"splits\": {", "\"splits\": {}, \"x\": {"},
      {"\"train\": {", "\"trains\": {"},
      {"\"held_out\": 0.4", "\"held_out\": 4"},
      {"\"line\": ", "\"line\": \"x\", \"l\": "},
      {"\"input\": 0", "\"input\": 1"},
      {"\"inputs\": [", "\"inputs\": {}, \"y\": ["},
  };
  for (const auto& [from, to] : edits) {
    EXPECT_EQ(code_of_opening(resealed(with(from, to))), 4032) << from << " -> " << to;
  }
  EXPECT_EQ(code_of_opening(resealed(with("\"version\": 1", "\"version\": 2"))), 4033);
}

TEST_F(Manifests, NoJsonAtAllIsRefused) {
  for (const std::string& text : {std::string(), std::string("{"), std::string("[]"), std::string("null"),
                                  std::string(100'000, '['), text_.substr(0, text_.size() / 2)}) {
    EXPECT_EQ(code_of_opening(text), 4032) << text.substr(0, 40);
  }
  fs::remove(folder_ / "out/manifest.json");
  fs::create_directory(folder_ / "out/manifest.json");
  EXPECT_EQ(error_code([&] { read_manifest(folder_ / "out"); }), 4031);
}

// One byte of it changed and the digest made right: it is read, or it is refused in our words.
TEST_F(Manifests, RandomEditsNeverDoAnythingElse) {
  const unsigned seed = trireme::testing::test_seed();
  SCOPED_TRACE("TRIREME_TEST_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  int refused = 0;
  for (int i = 0; i < 400; ++i) {
    std::string text = text_;
    const std::size_t at = 50 + random() % (text.size() - 50);
    if (i % 3 == 0) text.erase(at, 1 + random() % 20);
    if (i % 3 == 1) text[at] = "0123456789-\"{}[],:.e"[random() % 20];
    if (i % 3 == 2) text.insert(at, text_, random() % text_.size(), random() % 30);
    const int code = code_of_opening(resealed(text));
    EXPECT_TRUE(code == 0 || (code >= 4022 && code <= 4033)) << code << " at " << at;
    refused += code != 0 ? 1 : 0;
  }
  EXPECT_GT(refused, 130);
}

// The digest that a checkpoint keeps names the data, not where it lies.
TEST_F(Manifests, EqualDataHasAnEqualDigestAnywhere) {
  const TempFolder elsewhere;
  fs::copy(folder_ / "in/a.jsonl", elsewhere / "b.jsonl");
  PrepareOptions options;
  options.inputs = {elsewhere / "b.jsonl"};
  options.output = elsewhere / "out";
  options.held_out = 0.4;
  options.skip_malformed = true;
  prepare(options);
  const auto digest_of = [](const fs::path& folder) { return Dataset(folder, "train", {2, false}).digest(); };
  EXPECT_EQ(digest_of(elsewhere / "out"), digest_of(folder_ / "out"));
  options.held_out = 0;
  prepare(options);
  EXPECT_NE(digest_of(elsewhere / "out"), digest_of(folder_ / "out"));
}

}  // namespace
}  // namespace trireme::data
