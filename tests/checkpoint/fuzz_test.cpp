// Mutated files: a parser says what is wrong or reads something consistent; it never crashes, hangs or swallows memory.
// Worth most under ASAN and UBSAN.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/coverage.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/samples.h"
#include "checkpoint/signed_json.h"
#include "support/seed.h"
#include "support/temporary_folder.h"
#include "support/text_mutator.h"

namespace trireme::checkpoint::testing {
namespace {

using trireme::testing::TextMutator;

const int kRounds = trireme::testing::fuzz_rounds(4000);
const std::vector<std::string> kPieces = {"{",
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

TEST(Fuzz, SafetensorsHeadersNeverCrashTheReader) {
  const unsigned seed = trireme::testing::test_seed();
  SCOPED_TRACE("TRIREME_TEST_SEED=" + std::to_string(seed));
  TextMutator mutator(seed, kPieces);
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
  TextMutator mutator(seed, kPieces);
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
  TextMutator mutator(seed, kPieces);
  const std::string text = to_json_text(sample_manifest(3, 10));
  for (int round = 0; round < kRounds; ++round) {
    const std::string mutated = mutator.mutate(text);
    if (mutated == text) continue;
    EXPECT_THROW(parse_manifest(mutated, "fuzz"), Error) << mutated;
  }
}

}  // namespace
}  // namespace trireme::checkpoint::testing
