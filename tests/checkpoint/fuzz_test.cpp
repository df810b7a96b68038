// Mutated files: a parser says what is wrong or reads something consistent; it never crashes, hangs or swallows memory.
// Worth most under ASAN and UBSAN.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <random>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/coverage.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/samples.h"
#include "checkpoint/signed_json.h"
#include "support/seed.h"
#include "support/temporary_folder.h"

namespace trireme::checkpoint::testing {
namespace {

constexpr int kRounds = 4000;

class Mutator {
 public:
  explicit Mutator(unsigned seed) : random_(seed) {}

  // One to four changes: a flipped bit, a piece cut out, doubled or moved, a number or a token replaced.
  std::string mutate(std::string text) {
    for (int changes = static_cast<int>(pick(1, 4)); changes > 0 && !text.empty(); --changes) change(text);
    return text;
  }
  std::size_t pick(std::size_t low, std::size_t high) {
    return std::uniform_int_distribution<std::size_t>(low, high)(random_);
  }

 private:
  void change(std::string& text) {
    const std::size_t at = pick(0, text.size() - 1), length = pick(1, std::min<std::size_t>(40, text.size() - at));
    switch (pick(0, 5)) {
      case 0: text[at] = static_cast<char>(text[at] ^ (1 << pick(0, 7))); break;
      case 1: text.erase(at, length); break;
      case 2: text.insert(pick(0, text.size()), text.substr(at, length)); break;
      case 3: text.insert(at, kTokens[pick(0, std::size(kTokens) - 1)]); break;
      default: replace_number(text, at);
    }
  }

  void replace_number(std::string& text, std::size_t at) {
    const std::size_t begin = text.find_first_of("0123456789", at);
    if (begin == std::string::npos) return;
    const std::size_t end = std::min(text.find_first_not_of("0123456789", begin), text.size());
    text.replace(begin, end - begin, kNumbers[pick(0, std::size(kNumbers) - 1)]);
  }

  static constexpr const char* kTokens[] = {"{",
                                            "}",
                                            "[",
                                            "]",
                                            ",",
                                            ":",
                                            "\"",
                                            "null",
                                            "true",
                                            "-",
                                            "1e999",
                                            "\\u0000",
                                            "\xff",
                                            "[[[[[[[[[[[[",
                                            "\"dtype\":\"F64\",",
                                            "__metadata__",
                                            "../"};
  static constexpr const char* kNumbers[] = {"0",
                                             "1",
                                             "2",
                                             "4",
                                             "8",
                                             "12",
                                             "100",
                                             "-1",
                                             "1.5",
                                             "4294967296",
                                             "9223372036854775807",
                                             "9223372036854775808",
                                             "18446744073709551615",
                                             "18446744073709551616",
                                             "4611686018427387904",
                                             "1e300"};
  std::mt19937 random_;
};

TEST(Fuzz, SafetensorsHeadersNeverCrashTheReader) {
  const unsigned seed = trireme::testing::test_seed();
  SCOPED_TRACE("TRIREME_TEST_SEED=" + std::to_string(seed));
  Mutator mutator(seed);
  const trireme::testing::TemporaryFolder folder;
  const auto path = folder.path() / "f.safetensors";
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]},"c":{"dtype":"I64","shape":[],"data_offsets":[32,40]}})";
  int accepted = 0, refused = 0;
  for (int round = 0; round < kRounds; ++round) {
    const std::string mutated = mutator.mutate(header);
    std::uint64_t length = mutated.size();
    if (mutator.pick(0, 19) == 0) length ^= std::uint64_t{1} << mutator.pick(0, 63);
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &length, 8);
    bytes += mutated + std::string(mutator.pick(0, 9) == 0 ? mutator.pick(0, 80) : 40, 'x');
    std::filesystem::remove(path);  // some file systems flush a file that is cut to nothing and written again
    std::ofstream(path, std::ios::binary) << bytes;
    try {
      const SafetensorsFile file(path);
      std::size_t held = 0;
      for (const auto& [name, tensor] : file.tensors()) {
        std::int64_t size = size_of(tensor.dtype);
        for (const std::int64_t dimension : tensor.shape) size *= dimension;
        ASSERT_EQ(static_cast<std::int64_t>(tensor.data.size()), size);
        if (size == 0) continue;
        ASSERT_GE(tensor.data.data(), file.bytes().data() + 8);
        ASSERT_LE(tensor.data.data() + tensor.data.size(), file.bytes().data() + file.bytes().size());
        held += tensor.data.size();
      }
      ASSERT_EQ(8 + length + held, file.bytes().size());
      ++accepted;
    } catch (const Error& error) {
      ASSERT_TRUE(error.code() >= 5020 && error.code() <= 5029) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, kRounds / 2);
  EXPECT_GT(accepted, 0) << "mutations that leave a good file (a name, a value of the metadata) are part of it";
}

TEST(Fuzz, ForgedManifestsNeverCrashTheReader) {
  const unsigned seed = trireme::testing::test_seed();
  SCOPED_TRACE("TRIREME_TEST_SEED=" + std::to_string(seed));
  Mutator mutator(seed);
  Manifest manifest = sample_manifest(3, 10);
  manifest.files["state-a3-rank0.safetensors"] = {4096, {std::string(32, '0')}};
  manifest.tensors = {{"w",
                       DType::f32,
                       {4, 6},
                       {{"state-a3-rank0.safetensors", "p", 0, 2, 0, 6, 100},
                        {"state-a3-rank0.safetensors", "p", 2, 4, 0, 5, 0},
                        {"state-a3-rank0.safetensors", "p", 2, 4, 5, 6, 10}}},
                      {"v", DType::bf16, {9}, {{"state-a3-rank0.safetensors", "v", 0, 1, 0, 9, 0}}}};
  const std::string text = to_json_text(manifest);
  const std::string body = text.substr(text.find('\n') + 1);
  int accepted = 0, refused = 0;
  for (int round = 0; round < kRounds; ++round) {
    const std::string mutated = mutator.mutate(body);
    try {
      const Manifest parsed = parse_manifest(sign_body(mutated), "fuzz");
      for (const LogicalState& tensor : parsed.tensors) {
        std::int64_t covered = 0;
        for (const Entry& entry : tensor.entries) {
          const std::int64_t numel = (entry.row_end - entry.row_begin) * (entry.column_end - entry.column_begin);
          ASSERT_LE(static_cast<std::uint64_t>((entry.flat_begin + numel) * size_of(tensor.dtype)),
                    parsed.files.at(entry.file).bytes);
          covered += numel;
        }
        ASSERT_EQ(covered, matrix_of(tensor.shape).value().numel());
      }
      ++accepted;
    } catch (const Error& error) {
      ASSERT_TRUE(error.code() >= 5030 && error.code() <= 5039) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, kRounds / 4);
  EXPECT_GT(accepted, 0);
}

// Without the new signature nothing at all gets through.
TEST(Fuzz, MutatedManifestsAreAllRefused) {
  const unsigned seed = trireme::testing::test_seed();
  SCOPED_TRACE("TRIREME_TEST_SEED=" + std::to_string(seed));
  Mutator mutator(seed);
  const std::string text = to_json_text(sample_manifest(3, 10));
  for (int round = 0; round < kRounds; ++round) {
    const std::string mutated = mutator.mutate(text);
    if (mutated == text) continue;
    EXPECT_THROW(parse_manifest(mutated, "fuzz"), Error) << mutated;
  }
}

}  // namespace
}  // namespace trireme::checkpoint::testing
