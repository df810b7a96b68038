// Views, boundaries and what a unit refuses.
#include "chain/chain.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"

namespace trireme {
namespace {

TEST(Tensor, KnowsItsElementsAndBytes) {
  float memory[24];
  const Tensor tensor(memory, DType::f32, {2, 3, 4});
  EXPECT_EQ(tensor.num_dims, 3);
  EXPECT_EQ(tensor.numel(), 24);
  EXPECT_EQ(tensor.bytes(), 96);
  EXPECT_EQ(tensor.as<float>(), memory);
  EXPECT_EQ(Tensor(memory, DType::bf16, {7, 0}).numel(), 0);
  EXPECT_EQ(Tensor(memory, DType::f64, {}).numel(), 1);
}

TEST(Tensor, RefusesAnotherElementTypeAndTooManyDimensions) {
  float memory[1];
  EXPECT_THROW(Tensor(memory, DType::f32, {1}).as<double>(), Error);
  EXPECT_THROW(Tensor(memory, DType::f32, {1, 1, 1, 1, 1}), Error);
}

TEST(Boundary, PlacesEachTensorAtAMultipleOf256Bytes) {
  EXPECT_EQ(boundary_bytes({}), 0);
  EXPECT_EQ(boundary_bytes({{"hidden", DType::bf16, {2, 3, 5}}}), 256);
  EXPECT_EQ(boundary_bytes({{"a", DType::f32, {65}}, {"b", DType::u8, {1}}}), 512 + 256);
  EXPECT_EQ(boundary_bytes({{"a", DType::f32, {64}}, {"b", DType::i64, {0}}}), 256);
}

TEST(Chain, CountsLogicalElementsOnly) {
  Chain chain;
  chain.parameters = {{"padded", 128, 4, {{"e", {100, 4}, {0, 100, 0, 4}}}},
                      {"merged", 6, 4, {{"q", {4, 4}, {0, 4, 0, 4}}, {"k", {2, 4}, {4, 6, 0, 4}}}}};
  EXPECT_EQ(chain.num_parameters(), 424);
}

class Bare final : public Unit {
 public:
  const std::string& name() const override { return name_; }
  const std::vector<int>& parameters() const override { return parameters_; }
  BoundarySpec output(const BatchShape&) const override { return {}; }
  UnitCost describe(Phase, const BatchShape&) const override { return {}; }

 private:
  std::string name_ = "bare";
  std::vector<int> parameters_;
};

TEST(Unit, NamesItselfWhenAskedForWhatItHasNot) {
  const Bare unit;
  const Batch batch;
  const auto text = [](auto action) { return testing::expect_error(1000, action); };
  EXPECT_NE(text([&] { unit.forward({batch}); }).find("unit bare"), std::string::npos);
  EXPECT_NE(text([&] { unit.backward({batch}); }).find("no backward"), std::string::npos);
  EXPECT_NE(text([&] { unit.loss({batch}); }).find("no loss"), std::string::npos);
  EXPECT_NE(text([&] { unit.logits({batch}, {}, nullptr); }).find("no logits"), std::string::npos);
}

}  // namespace
}  // namespace trireme
