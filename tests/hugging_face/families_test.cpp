// Models of every family, made by transformers, come in and go out unchanged.
#include <gtest/gtest.h>

#include <cmath>

#include "base/file.h"
#include "hugging_face/support.h"
#include "support/temporary_folder.h"
#include "train/convert.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

class Families : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!has_transformers()) GTEST_SKIP() << kNoTransformers;
  }
};

TEST_F(Families, GoOutAsTheyCameInAndTransformersLoadsThem) {
  const TemporaryFolder folder;
  std::vector<std::string> question{"loads"};
  for (const std::string& name : family_names()) {
    SCOPED_TRACE(name);
    const fs::path original = families() / name, exported = folder.path() / name;
    train::convert({.source = original, .output = exported, .dtype = {}, .max_shard_bytes = 40'000});
    EXPECT_TRUE(fs::exists(exported / "model.safetensors.index.json"));
    EXPECT_EQ(read_file(exported / "generation_config.json"), read_file(original / "generation_config.json"));
    question.insert(question.end(), {exported, original});
  }
  ask_oracle(question);
}

TEST_F(Families, GiveTheLogitsOfTransformers) {
  const std::vector<std::int32_t> ids = read_values<std::int32_t>(families() / "ids.i32");
  for (const std::string& name : family_names()) {
    SCOPED_TRACE(name);
    const std::vector<float> expected = read_values<float>(families() / name / "logits.f32");
    const std::vector<float> logits = ForwardModel(families() / name).last_logits(ids, std::ssize(ids) / 2);
    double norm = 0;
    for (const float value : expected) norm = std::max(norm, std::abs(static_cast<double>(value)));
    EXPECT_LT(largest_difference(logits, expected), 1e-5 * norm);
  }
}

}  // namespace
}  // namespace trireme::testing
