// What a step of a known model is counted as, beside numbers that were worked out by hand or published.
#include "measure/step_work.h"

#include <gtest/gtest.h>

#include "measure/known_models.h"
#include "support/expect_error.h"

namespace trireme::testing {
namespace {

using measure::ModelShape;

ModelShape shape(const std::string& model) {
  return measure::shape_of(measure::known_model(model, 1024));
}

// Of the models' cards.
TEST(KnownModels, HaveTheParametersOfTheirMakers) {
  const auto billions = [](const char* model) { return static_cast<double>(shape(model).parameters) * 1e-9; };
  EXPECT_NEAR(billions("llama-1b"), 1.236, 0.001);
  EXPECT_NEAR(billions("llama-3b"), 3.213, 0.001);
  EXPECT_NEAR(billions("llama-8b"), 8.030, 0.001);
  EXPECT_NEAR(billions("gpt2-124m"), 0.1244, 0.0002);  // padding too
  EXPECT_NEAR(billions("gpt2-xl"), 1.558, 0.001);
  EXPECT_NEAR(billions("qwen2.5-1.5b"), 1.544, 0.001);
  EXPECT_NEAR(billions("qwen2.5-3b"), 3.086, 0.001);
  EXPECT_NEAR(billions("qwen2.5-7b"), 7.616, 0.001);
  expect_error(2019, [] { measure::known_model("llama", 8); });
}

TEST(StepWork, CountsOperationsByItsFormula) {
  const ModelShape s = shape("llama-1b");
  // 16 blocks of 2048 x (3072 + 2048 + 16384 + 8192), and a head of 128256 rows.
  EXPECT_EQ(s.matmul_weights(), 16.0 * 2048 * 29696 + 128256.0 * 2048);
  EXPECT_EQ(s.flops_per_token(4096), 6 * s.matmul_weights() + 6.0 * 16 * 2048 * 4096);
  EXPECT_EQ(shape("llama-8b").matmul_weights(), 32 * 4096.0 * (6144 + 4096 + 28672 + 14336) + 128256.0 * 4096);
}

// The products of a micro-batch have the operations of the formula: two a weight and token, forward.
TEST(StepWork, ProductsAreAllMatmulWeights) {
  for (const char* model : {"llama-3b", "gpt2-xl", "qwen2.5-7b"}) {
    double operations = 0;
    for (const measure::Product& product : measure::products_of(shape(model), 6000)) {
      operations += product.times * static_cast<double>(product.rows * product.inputs * product.outputs);
    }
    EXPECT_NEAR(operations / (6000 * shape(model).matmul_weights()), 1, 1e-12) << model;
  }
}

TEST(StepWork, FloorIsTheSumOfItsParts) {
  const ModelShape s = shape("gpt2-124m");
  const measure::StepRates rates{.products_s = 1, .attention_s = 0.25, .copy_bytes_per_s = 1e12};
  const double moved = measure::elementwise_bytes(s, 8192, 2) / 1e12, update = measure::update_bytes(s, {}) / 1e12;
  EXPECT_NEAR(measure::floor_seconds(s, 8192, 4, 2, {}, rates), 4 * (1.25 + moved) + update, 1e-12);
  EXPECT_NEAR(update, s.parameters * 34e-12, 1e-9);
  EXPECT_EQ(measure::update_bytes(s, {.sum = 2, .master = 2, .moment = 2, .weights = 0}), s.parameters * 16);
  // By hand: two norms of 6 C elements a token, forward and backward, and an activation of 2 F and 3 F.
  const double block = 12 * 768 + 2 * 3072 + 3 * 3072, rest = 3 * 768 + 6 * 768 + 2 * 50304;
  EXPECT_EQ(measure::elementwise_bytes(s, 10, 2), 2 * (10 * (12 * block + rest) + 2 * 50304.0 * 768));
}

}  // namespace
}  // namespace trireme::testing
