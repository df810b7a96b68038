#include "checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>

#include "base/file.h"
#include "base/hash.h"
#include "checkpoint/block_digest.h"
#include "support/expect_error.h"
#include "support/oracle.h"
#include "support/process.h"
#include "support/temporary_folder.h"

namespace trireme::checkpoint::testing {
namespace {

namespace fs = std::filesystem;
using trireme::testing::expect_error;
using trireme::testing::TemporaryFolder;

// A file of that header, whatever it says, and so many bytes of data.
std::string file_of(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string text(8, '\0');
  std::memcpy(text.data(), &length, 8);
  return text + header + std::string(data_bytes, 'd');
}

class Safetensors : public ::testing::Test {
 protected:
  fs::path path() const { return folder_.path() / "model.safetensors"; }
  SafetensorsFile open(const std::string& bytes) const {
    std::ofstream(path(), std::ios::binary | std::ios::trunc) << bytes;
    return SafetensorsFile(path());
  }
  std::string refuses(int code, const std::string& bytes) const {
    return expect_error(code, [&] { open(bytes); });
  }
  TemporaryFolder folder_;
};

std::vector<TensorToWrite> sample(const std::vector<float>& a, const std::vector<std::uint16_t>& b) {
  return {{"z.first \"q\" \xc3\xa9", {DType::f32, {2, 3}, std::as_bytes(std::span(a))}},
          {"a.second", {DType::bf16, {5}, std::as_bytes(std::span(b))}},
          {"empty", {DType::i64, {0, 7}, {}}},
          {"scalar", {DType::f32, {}, std::as_bytes(std::span(a).first(1))}}};
}

TEST_F(Safetensors, WhatIsReadIsWhatWasWritten) {
  const std::vector<float> a{1, 2, 3, 4, 5, 6};
  const std::vector<std::uint16_t> b{1, 2, 3, 4, 65535};
  const auto tensors = sample(a, b);
  const WrittenFile written = write_safetensors(path(), tensors, {{"format", "pt"}, {"key", "value"}});
  const SafetensorsFile file(path());
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"format", "pt"}, {"key", "value"}}));
  ASSERT_EQ(file.tensors().size(), tensors.size());
  for (const TensorToWrite& tensor : tensors) {
    const TensorEntry& read = file.tensors().at(tensor.name);
    EXPECT_EQ(read.dtype, tensor.entry.dtype);
    EXPECT_EQ(read.shape, tensor.entry.shape);
    ASSERT_EQ(read.data.size(), tensor.entry.data.size());
    EXPECT_TRUE(std::equal(read.data.begin(), read.data.end(), tensor.entry.data.begin()));
  }
  EXPECT_EQ(written.bytes, fs::file_size(path()));
  EXPECT_EQ(written.block_digests, std::vector<std::string>{digest(read_file(path()))});
}

TEST_F(Safetensors, TheDataBeginsAtAMultipleOf64InTheGivenOrder) {
  const std::vector<float> values(16, 1);
  for (std::size_t length = 1; length < 70; ++length) {
    const fs::path file = folder_.path() / std::to_string(length);
    const std::vector<TensorToWrite> tensors{
        {std::string(length, 'n'), {DType::f32, {16}, std::as_bytes(std::span(values))}},
        {"a", {DType::f32, {1}, std::as_bytes(std::span(values).first(1))}}};
    write_safetensors(file, tensors, {});
    const SafetensorsFile read(file);
    const std::byte* begin = read.bytes().data();
    EXPECT_EQ((read.tensors().at(tensors[0].name).data.data() - begin) % 64, 0);
    EXPECT_EQ(read.tensors().at("a").data.data() - read.tensors().at(tensors[0].name).data.data(), 64);
  }
}

TEST_F(Safetensors, BlockDigestsAreThoseOfTheBlocksOfTheFile) {
  const std::vector<float> values(700000, 0.5f);
  const WrittenFile written = write_safetensors(
      path(), std::vector<TensorToWrite>{{"w", {DType::f32, {700000}, std::as_bytes(std::span(values))}}}, {});
  const std::string bytes = read_file(path());
  ASSERT_EQ(written.block_digests.size(), 3u);
  for (std::size_t block = 0; block < 3; ++block) {
    EXPECT_EQ(written.block_digests[block], digest(std::string_view(bytes).substr(block * kBlockBytes, kBlockBytes)));
  }
}

TEST_F(Safetensors, TheWriterRefusesDataThatDoesNotFitItsShapeAndNamesThatAreThereTwice) {
  const std::vector<float> a{1, 2};
  const TensorEntry good{DType::f32, {2}, std::as_bytes(std::span(a))},
      bad{DType::f32, {3}, std::as_bytes(std::span(a))};
  expect_error(1000, [&] { write_safetensors(path(), std::vector<TensorToWrite>{{"w", bad}}, {}); });
  expect_error(1000, [&] { write_safetensors(path(), std::vector<TensorToWrite>{{"w", good}, {"w", good}}, {}); });
  EXPECT_FALSE(fs::exists(path()));
}

TEST_F(Safetensors, ReadsWhatOthersWrite) {
  const SafetensorsFile file = open(file_of(
      R"({"b":{"shape":[1],"data_offsets":[4,8],"dtype":"F32"},"a":{"dtype":"U8","shape":[2,2],"data_offsets":[0,4]}}   )",
      8));
  EXPECT_EQ(file.tensors().at("a").shape, (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(file.tensors().at("b").dtype, DType::f32);
  EXPECT_TRUE(open(file_of("{}", 0)).tensors().empty());
}

TEST_F(Safetensors, RefusesLengthsThatDoNotFit) {
  refuses(5021, "");
  refuses(5021, std::string(7, '\0'));
  refuses(5021, std::string("\xff\xff\xff\xff\xff\xff\xff\xff", 8) + "{}");
  refuses(5021, std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8) + "{}");
  refuses(5021, std::string("\x03\0\0\0\0\0\0\0", 8) + "{}");
  refuses(5022, std::string("\0\0\0\0\0\0\0\0", 8) + "{}");
}

TEST_F(Safetensors, RefusesHeadersThatAreNoJson) {
  for (const char* header :
       {"{", "{}}", "{\"a\"", "{\"a\":}", " {}", "[]", "\"a\"", "{} x", "{\"\xff\":{}}", "{'a':1}"}) {
    SCOPED_TRACE(header);
    refuses(5022, file_of(header, 0));
  }
  refuses(5022, file_of(std::string("{}\0", 3), 0));
}

TEST_F(Safetensors, RefusesOtherStructures) {
  for (const char* header :
       {R"({"a":1})",
        R"({"a":null})",
        R"({"a":[]})",
        R"({"a":"x"})",
        R"({"a":{}})",
        R"({"a":{"dtype":1}})",
        R"({"a":{"dtype":"F32","shape":[1]}})",
        R"({"a":{"dtype":"F32","data_offsets":[0,4]}})",
        R"({"a":{"shape":[1],"data_offsets":[0,4]}})",
        R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})",
        R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,4]}})",
        R"({"a":{"dtype":"F32","shape":1,"data_offsets":[0,4]}})",
        R"({"a":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})",
        R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})",
        R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})",
        R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})",
        R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}})",
        R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,1e1]}})",
        R"({"a":{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,4]}})",
        R"({"a":{"dtype":{"x":1}}})",
        R"({"__metadata__":{"a":1}})",
        R"({"__metadata__":{"a":{}}})",
        R"({"__metadata__":[]})",
        R"({"__metadata__":"x"})",
        R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}})",
        R"({"a":{"dtype":true}})"}) {
    SCOPED_TRACE(header);
    refuses(5023, file_of(header, 4));
  }
}

TEST_F(Safetensors, RefusesDeepNestingAtOnce) {
  const std::size_t depth = 5'000'000;  // a reader that recursed, or kept it, would die of it
  refuses(5023, file_of("{\"a\":" + std::string(depth, '['), 0));
  std::string objects = "{";
  for (int i = 0; i < 100000; ++i) objects += "\"a\":{";
  refuses(5023, file_of(objects, 0));
}

TEST_F(Safetensors, RefusesShapesAndOffsetsThatDoNotFit) {
  const auto header = [](const std::string& shape, const std::string& offsets) {
    return R"({"a":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  refuses(5024, file_of(header("[2]", "[0,4]"), 8));
  refuses(5024, file_of(header("[2]", "[8,0]"), 8));
  refuses(5024, file_of(header("[2]", "[0,8]"), 4));
  refuses(5024, file_of(header("[2]", "[18446744073709551608,0]"), 8));
  refuses(5024, file_of(header("[2]", "[18446744073709551608,18446744073709551615]"), 8));
  refuses(5024, file_of(header("[4611686018427387904]", "[0,0]"), 0));
  refuses(5024, file_of(header("[4294967296,4294967296]", "[0,0]"), 0));
  refuses(5024, file_of(header("[9223372036854775808,0]", "[0,0]"), 0));
}

TEST_F(Safetensors, RefusesUnknownElementTypesAndNamesTheTensor) {
  const auto text = refuses(5020, file_of(R"({"some.weight":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}})", 4));
  EXPECT_NE(text.find("some.weight"), std::string::npos);
  EXPECT_NE(text.find("F33"), std::string::npos);
}

TEST_F(Safetensors, RefusesOverlapsAndGaps) {
  const auto header = [](const std::string& first, const std::string& second) {
    return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + first +
           R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + second + "}}";
  };
  EXPECT_EQ(open(file_of(header("[4,8]", "[0,4]"), 8)).tensors().size(), 2u);
  refuses(5025, file_of(header("[0,4]", "[2,6]"), 6));
  refuses(5025, file_of(header("[0,4]", "[0,4]"), 4));
  refuses(5025, file_of(header("[0,4]", "[5,9]"), 9));
  refuses(5025, file_of(header("[1,5]", "[5,9]"), 9));
  refuses(5025, file_of(header("[0,4]", "[4,8]"), 9));
  refuses(5025, file_of("{}", 1));
}

TEST_F(Safetensors, RefusesNamesThatAreThereTwice) {
  const std::string tensor = R"({"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  refuses(5026, file_of(R"({"a":)" + tensor + R"(,"a":)" + tensor + "}", 0));
  refuses(5026, file_of(R"({"a":)" + tensor + R"(,"\u0061":)" + tensor + "}", 0));
  refuses(5026, file_of(R"({"__metadata__":{},"__metadata__":{}})", 0));
  refuses(5026, file_of(R"({"__metadata__":{"k":"v","k":"w"}})", 0));
  refuses(5026, file_of(R"({"a":{"dtype":"U8","shape":[0],"shape":[0],"data_offsets":[0,0]}})", 0));
}

// Written by us, read by the library of the format's inventors.
TEST_F(Safetensors, HuggingFacesReaderLoadsOurFiles) {
  if (!fs::exists(trireme::testing::kOraclePython))
    GTEST_SKIP() << "no .deps/oracle (scripts/setup.sh --tests makes it)";
  const std::vector<float> a{1, 2, 3, 4, 5, 6};
  const std::vector<TensorToWrite> tensors{{"w", {DType::f32, {2, 3}, std::as_bytes(std::span(a))}},
                                           {"s", {DType::f32, {}, std::as_bytes(std::span(a).first(1))}}};
  write_safetensors(path(), tensors, {{"format", "pt"}});
  const auto result =
      trireme::testing::run({trireme::testing::kOraclePython, "-W", "ignore", "-c",
                             "import importlib.util, sys; importlib.util.find_spec('torch') or sys.exit(77);"
                             "from safetensors.torch import load_file; t = load_file(sys.argv[1]);"
                             "print(sorted(t), t['w'].tolist(), tuple(t['s'].shape), float(t['s']))",
                             path().string()});
  if (result.exit_code == 77) GTEST_SKIP() << "no torch in .deps/oracle: the system's Python is not 3.11";
  EXPECT_EQ(result.out, "['s', 'w'] [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]] () 1.0\n") << result.err;
}

}  // namespace
}  // namespace trireme::checkpoint::testing
