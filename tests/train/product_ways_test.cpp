#include "train/product_ways.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "base/file.h"
#include "kernels/device.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"
#include "train/engine_run.h"

namespace trireme::testing {
namespace {

TEST(ProductWays, AreThoseThatWereWritten) {
  const train::ProductWays ways{"a library", {{"a", 3}, {"b", 0}}};
  const train::ProductWays read = train::parse_product_ways(train::to_json_text(ways), "here");
  EXPECT_EQ(read.library, ways.library);
  EXPECT_EQ(read.ways, ways.ways);
}

TEST(ProductWays, OtherTextIsRefused) {
  for (const char* text : {"", "[]", "{}", R"({"library": 1, "products": {}})", R"({"library": "a", "products": []})",
                           R"({"library": "a", "products": {"a": -1}})", R"({"library": "a", "products": {"a": 64}})",
                           R"({"library": "a", "products": {"a": "0"}})"}) {
    SCOPED_TRACE(text);
    expect_error(2296, [&] { train::parse_product_ways(text, "here"); });
  }
}

class DeviceProducts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kernels::num_devices() == 0) GTEST_SKIP() << "no CUDA device here: " << kernels::why_no_device();
    setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1);
    kernels::use_device(0);
    stream_.emplace();
    on_.emplace(*stream_);
  }
  void TearDown() override {
    if (on_) kernels::choose_products({});
    on_.reset();
  }
  train::ProductWays find(const std::vector<kernels::Product>& products, const train::ProductWays& known = {}) {
    notices_.clear();
    return train::find_product_ways(products, known, notices_);
  }
  // The notices since the last find(), each with its words.
  void expect_notices(const std::vector<std::string>& words) const {
    ASSERT_EQ(notices_.size(), words.size());
    for (std::size_t i = 0; i < words.size(); ++i)
      EXPECT_NE(notices_[i].find(words[i]), std::string::npos) << notices_[i];
  }
  std::filesystem::path file() const { return std::filesystem::directory_iterator(folder_.path() / "trireme")->path(); }

  TemporaryFolder folder_;
  std::optional<kernels::Stream> stream_;
  std::optional<kernels::OnStream> on_;
  std::vector<std::string> notices_;
};

kernels::Product product_of(std::int64_t m) {
  return {DType::bf16, DType::bf16, false, true, false, m, 512, 256, 256, 256, 512};
}

TEST_F(DeviceProducts, AreMeasuredOnceOnAMachine) {
  const train::ProductWays first = find({product_of(512), product_of(513)});
  EXPECT_EQ(first.library, kernels::product_library());
  EXPECT_EQ(first.ways.size(), 2u);
  expect_notices({"of 2 matrix products were measured"});
  EXPECT_EQ(find({product_of(513), product_of(512)}).ways, first.ways);
  expect_notices({});
  EXPECT_EQ(find({product_of(514)}).ways.size(), 1u) << "only those of the run";
  expect_notices({"of 1 matrix products were measured"});
  EXPECT_EQ(train::parse_product_ways(read_file(file()), "").ways.size(), 3u) << "what was there stays";
}

TEST_F(DeviceProducts, AFileThatIsWrongIsMadeAnew) {
  const train::ProductWays first = find({product_of(512)});
  std::ofstream(file()) << "{";
  EXPECT_EQ(find({product_of(512)}).ways.size(), 1u);
  expect_notices({"measured anew", "were measured"});
  find({product_of(512)});
  expect_notices({});
}

TEST_F(DeviceProducts, OnesOfACheckpointComeFirst) {
  const std::string name = kernels::to_string(product_of(512));
  EXPECT_EQ(find({product_of(512)}, {kernels::product_library(), {{name, 5}}}).ways.at(name), 5);
  expect_notices({});
  const train::ProductWays own = find({product_of(512)}, {"another library", {{name, 5}}});
  expect_notices({"were measured"});
  EXPECT_EQ(find({product_of(512)}).ways, own.ways);
}

// The stand-in for a device (tests/stand_in) computes none that is not named where others are.
TEST_F(DeviceProducts, AllOfAStepAreNamed) {
  for (const bool gpt2 : {false, true}) {
    for (const bool bf16 : {false, true}) {
      EngineRun wanted;
      wanted.run = {.steps = 1, .bf16 = bf16, .gpt2 = gpt2, .overrides = {"training.device=cuda"}};
      std::size_t count = 0;
      wanted.begin = [&](engine::Engine&, const Chain& chain) {
        kernels::ProductChoices choices;
        for (const kernels::Product& product : train::products_of(chain, {wanted.run.micro_batch_size, 16}, 0)) {
          choices[product] = 0;
        }
        count = choices.size();
        const kernels::OnStream on(*stream_);  // ranks are threads
        kernels::choose_products(choices);
      };
      run_engines(wanted);
      EXPECT_GE(count, 12u);
    }
  }
}

}  // namespace
}  // namespace trireme::testing
