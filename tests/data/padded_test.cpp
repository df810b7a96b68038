// Padded samples and slices of splits.
#include <algorithm>
#include <cmath>

#include "data/pad_token.h"
#include "data/split.h"
#include "made_split.h"
#include "prepare_support.h"
#include "support/seed.h"

namespace trireme::data {
namespace {

using Documents = std::vector<std::vector<std::int32_t>>;

Documents random_documents(std::mt19937_64& random, std::size_t count, std::uint64_t max_size) {
  Documents documents(count);
  for (auto& document : documents) {  // empty ones too; the mark's id also inside
    document.resize(random() % (max_size + 1));
    for (std::int32_t& id : document) id = static_cast<std::int32_t>(random() % 50);
  }
  return documents;
}

// The definition: a row of a document alone.
Rows naive_padded(std::vector<std::int32_t> document, std::int64_t length, bool end_marks, std::int32_t pad,
                  const std::vector<std::int32_t>& prefix) {
  document.insert(document.begin(), prefix.begin(), prefix.end());
  if (end_marks) document.push_back(kEnd);
  Rows rows(length);
  for (std::int64_t t = 0; t < length; ++t) {
    const bool is_pad = t >= std::ssize(document);
    const bool has_next = t + 1 < std::min<std::int64_t>(std::ssize(document), length);
    rows.ids[t] = is_pad ? pad : document[t];
    rows.labels[t] = has_next ? document[t + 1] : -1;
    rows.positions[t] = is_pad ? 0 : static_cast<std::int32_t>(t);
    rows.starts[t] = is_pad ? static_cast<std::int32_t>(t) : 0;
  }
  return rows;
}

TEST(Padded, RowsEqualTheDefinitionOnRandomDocuments) {
  const unsigned seed = trireme::testing::test_seed();
  SCOPED_TRACE("TRIREME_TEST_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 8; ++round) {
    const TempFolder folder;
    const auto length = 1 + static_cast<std::int64_t>(random() % 12);
    const Documents documents = random_documents(random, 1 + random() % 20, 2 * static_cast<std::uint64_t>(length));
    write_split(folder.path(), documents, 300, 3 + random() % 30);
    for (const bool end_marks : {false, true}) {
      for (const std::optional<std::int32_t> pad : {std::optional<std::int32_t>(), std::optional(299)}) {
        const std::vector<std::int32_t> prefix(random() % 4, 255);
        const Dataset dataset(folder.path(), "train",
                              {.sequence_length = length,
                               .packing = Packing::padded,
                               .end_marks = end_marks,
                               .prefix = prefix,
                               .pad_token = pad});
        ASSERT_EQ(dataset.num_samples(), documents.size());
        std::uint64_t num_cut = 0;
        for (std::uint64_t sample = 0; sample < documents.size(); ++sample) {
          Rows rows(length);
          dataset.read(sample, rows.rows());
          ASSERT_EQ(rows, naive_padded(documents[sample], length, end_marks, pad.value_or(kEnd), prefix)) << sample;
          num_cut += std::ssize(prefix) + std::ssize(documents[sample]) + (end_marks ? 1 : 0) > length ? 1 : 0;
        }
        EXPECT_EQ(dataset.num_cut(), num_cut);
        EXPECT_EQ(dataset.num_bytes(), 0u);
      }
    }
  }
}

constexpr const char* kTokenizer = R"({"version": "1.0", "added_tokens": [
  {"id": 2, "content": "<s>", "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false},
  {"id": 3, "content": "</s>", "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false},
  {"id": 4, "content": "<pad>", "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false}],
 "normalizer": null, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
 "post_processor": null, "decoder": {"type": "ByteLevel"},
 "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "<s>": 2, "</s>": 3, "<pad>": 4}, "merges": []}})";

TEST(Padded, ThePadTokenIsThatOfTheKeyElseTheTokenizersElseTheEndMark) {
  const TempFolder folder;
  write(folder / "tokenizer.json", kTokenizer);
  const auto pad = [&](const std::string& config, const std::string& wanted) {
    write(folder / "tokenizer_config.json", config);
    return pad_token_of(*load_tokenizer(folder.path().string()), wanted);
  };
  EXPECT_EQ(pad(R"({"eos_token": "</s>", "pad_token": "<pad>"})", ""), 4);
  EXPECT_EQ(pad(R"({"eos_token": "</s>", "pad_token": {"content": "<pad>"}})", ""), 4);
  EXPECT_EQ(pad(R"({"eos_token": "</s>"})", ""), 3);
  EXPECT_EQ(pad(R"({"eos_token": "</s>", "pad_token": "<pad>"})", "<s>"), 2);
  EXPECT_EQ(pad(R"({"eos_token": "</s>"})", "a"), 0);
  EXPECT_EQ(error_code([&] { pad(R"({"eos_token": "</s>"})", "ab"); }), 4027);
}

TEST(Padded, APadTokenOutsideTheVocabularyIsRefused) {
  const TempFolder folder;
  write_split(folder.path(), {{1, 2, 3}}, 300, 100);
  for (const std::int32_t pad : {-1, 300}) {
    EXPECT_EQ(error_code([&] {
                Dataset(folder.path(), "train", {.sequence_length = 4, .packing = Packing::padded, .prefix = {1, pad}});
              }),
              4026);
    const Error error = error_of(
        [&] { Dataset(folder.path(), "train", {.sequence_length = 4, .packing = Packing::padded, .pad_token = pad}); });
    EXPECT_EQ(error.code(), 4026) << error.what();
  }
}

// A slice is the data set of its documents alone, packed or padded.
TEST(Slices, AreTheDataOfTheirDocuments) {
  const unsigned seed = trireme::testing::test_seed();
  SCOPED_TRACE("TRIREME_TEST_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 8; ++round) {
    const TempFolder whole, part;
    Documents documents = random_documents(random, 2 + random() % 20, 30);
    const std::size_t begin = random() % documents.size();
    const std::size_t end = begin + 1 + random() % (documents.size() - begin);
    documents[begin].resize(12, 7);  // a sample at least
    write_split(whole.path(), documents, 300, 3 + random() % 60);
    write_split(part.path(),
                Documents(documents.begin() + static_cast<std::ptrdiff_t>(begin),
                          documents.begin() + static_cast<std::ptrdiff_t>(end)),
                300, 1000);
    const std::string slice = "train[" + std::to_string(begin) + ":" + std::to_string(end) + "]";
    SCOPED_TRACE(slice);
    for (const DatasetOptions& options : {DatasetOptions{5, false}, {5, true}, {5, false, Packing::padded}}) {
      const Dataset sliced(whole.path(), slice, options), alone(part.path(), "train", options);
      ASSERT_EQ(sliced.num_samples(), alone.num_samples());
      ASSERT_EQ(sliced.num_documents(), alone.num_documents());
      for (std::uint64_t sample = 0; sample < alone.num_samples(); ++sample) {
        Rows found(5), expected(5);
        sliced.read(sample, found.rows());
        alone.read(sample, expected.rows());
        ASSERT_EQ(found, expected) << "sample " << sample;
      }
      EXPECT_EQ(sliced.tokens(0, sliced.num_tokens()), alone.tokens(0, alone.num_tokens()));
      for (std::uint64_t i = 0; i < alone.num_documents(); ++i)
        EXPECT_EQ(sliced.document_end(i), alone.document_end(i));
    }
  }
}

// What a list in Python gives for [from:to].
DocumentRange python_slice(std::optional<std::int64_t> from, std::optional<std::int64_t> to, std::int64_t count) {
  const auto clamp = [&](std::int64_t i) { return std::clamp<std::int64_t>(i < 0 ? i + count : i, 0, count); };
  const std::int64_t begin = from ? clamp(*from) : 0;
  const std::int64_t end = std::max(begin, to ? clamp(*to) : count);
  return {static_cast<std::uint64_t>(begin), static_cast<std::uint64_t>(end)};
}

std::string slice(std::string name, const std::string& from, const std::string& to) {
  return name.append("[").append(from).append(":").append(to).append("]");
}

TEST(Slices, AreCutAsPythonCutsLists) {
  for (const std::int64_t count : {0, 1, 7}) {
    for (std::int64_t from = -9; from <= 9; ++from) {
      for (std::int64_t to = -9; to <= 9; ++to) {
        const std::string f = std::to_string(from), t = std::to_string(to);
        const auto range = [&](const std::string& text) {
          return documents_of(parse_split(text, "here"), static_cast<std::uint64_t>(count));
        };
        EXPECT_EQ(range(slice("train", f, t)), python_slice(from, to, count)) << f << ":" << t;
        EXPECT_EQ(range(slice("train", f, "")), python_slice(from, {}, count)) << f;
        EXPECT_EQ(range(slice("heldout", "", t)), python_slice({}, to, count)) << t;
      }
    }
    EXPECT_EQ(documents_of(parse_split("train[:]", "here"), 7), (DocumentRange{0, 7}));
    EXPECT_EQ(documents_of(parse_split("train", "here"), 7), (DocumentRange{0, 7}));
  }
}

TEST(Slices, PercentagesAreRoundedToTheNearestDocumentAndHalvesToEven) {
  const auto range = [](const std::string& text, std::uint64_t count) {
    const DocumentRange documents = documents_of(parse_split(text, "here"), count);
    return std::pair(documents.begin, documents.end);
  };
  EXPECT_EQ(range("train[10%:20%]", 1000), std::pair(100ul, 200ul));
  EXPECT_EQ(range("train[:50%]", 5), std::pair(0ul, 2ul));
  EXPECT_EQ(range("train[:50%]", 7), std::pair(0ul, 4ul));
  EXPECT_EQ(range("train[-25%:]", 10), std::pair(8ul, 10ul));
  EXPECT_EQ(range("train[33%:66%]", 999), std::pair(330ul, 659ul));
  EXPECT_EQ(range("train[60%:40%]", 10), std::pair(6ul, 6ul));
  // Neighbours share their border: nothing is lost or taken twice.
  for (std::uint64_t count = 0; count < 50; ++count) {
    std::uint64_t reached = 0;
    for (int percent = 0; percent < 100; ++percent) {
      const auto [begin, end] =
          range(slice("train", std::to_string(percent) + "%", std::to_string(percent + 1) + "%"), count);
      EXPECT_EQ(begin, reached);
      reached = end;
    }
    EXPECT_EQ(reached, count);
  }
}

TEST(Slices, WrongOnesAreRefused) {
  for (const char* text : {"",
                           "test",
                           "Train",
                           "train[",
                           "train]",
                           "train[]",
                           "train[5]",
                           "train[:5",
                           "train[:5]]",
                           "train[a:b]",
                           "train[1.5:]",
                           "train[:101%]",
                           "train[-101%:]",
                           "train[10%:20]",
                           "train[1:2%]",
                           "train[1:2:3]",
                           "train [:5]",
                           "train[: 5]",
                           "train[:5]+train[7:]",
                           "train[:99999999999999999999]",
                           "train[:%]",
                           "train[--1:]",
                           "train[:+5]",
                           "../train[:5]"}) {
    EXPECT_EQ(error_code([&] { parse_split(text, "here"); }), 4025) << text;
  }
  const TempFolder folder;
  write_split(folder.path(), {{1, 2, 3}, {4, 5}, {}}, 300, 100);
  for (const char* text : {"train[3:]", "train[2:1]", "train[:0]", "train[:10%]"}) {
    EXPECT_EQ(error_code([&] { Dataset(folder.path(), text, {1, false}); }), 4023) << text;
  }
  EXPECT_EQ(error_code([&] { Dataset(folder.path(), "train[:1]", {5, false}); }), 4022);
}

TEST(Slices, AnotherSelectionIsOtherData) {
  const TempFolder folder;
  write_split(folder.path(), {{1, 2, 3}, {4, 5}, {6, 7, 8, 9, 10}}, 300, 100);
  const auto digest_of = [&](const std::string& split, const DatasetOptions& options) {
    return Dataset(folder.path(), split, options).digest();
  };
  const std::vector<std::string> digests = {
      digest_of("train", {2, false}),
      digest_of("train[:2]", {2, false}),
      digest_of("train[1:]", {2, false}),
      digest_of("train", {.sequence_length = 2, .max_samples = 2}),
      digest_of("train", {.sequence_length = 2, .packing = Packing::padded}),
      digest_of("train", {.sequence_length = 2, .packing = Packing::padded, .end_marks = false}),
      digest_of("train", {.sequence_length = 2, .packing = Packing::padded, .max_samples = 2}),
      digest_of("train", {.sequence_length = 2, .packing = Packing::padded, .prefix = {1}}),
  };
  for (std::size_t i = 0; i < digests.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(digests[i], digests[j]) << i << " " << j;
  }
  EXPECT_EQ(digest_of("train[:100%]", {2, false}), digests[0]);
  EXPECT_EQ(digest_of("train[:99]", {7, true}), digests[0]);
}

TEST(Samples, CanBeLimited) {
  const TempFolder folder;
  write_split(folder.path(), Documents(10, {1, 2, 3, 4}), 300, 100);
  EXPECT_EQ(Dataset(folder.path(), "train", {.sequence_length = 5, .max_samples = 4}).num_samples(), 4u);
  EXPECT_EQ(Dataset(folder.path(), "train", {.sequence_length = 5, .max_samples = 400}).num_samples(), 10u);
  EXPECT_EQ(Dataset(folder.path(), "train", {5, false, Packing::padded, 3}).num_samples(), 3u);
  EXPECT_EQ(Dataset(folder.path(), "train", {.sequence_length = 5, .max_samples = 4}).num_bytes(), 0u);
}

}  // namespace
}  // namespace trireme::data
