// Where layers put their tensors, and which element types they take.
#include "layers/memory.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/kernels.h"
#include "layers/attention.h"
#include "layout/dispatch.h"
#include "support/expect_error.h"

namespace trireme {
namespace {

TEST(MemoryLayout, SizesAndPlacesAgree) {
  std::vector<std::byte> memory(1024);
  MemoryLayout sizing, placing(memory.data());
  for (MemoryLayout* layout : {&sizing, &placing}) {
    layout->place(DType::bf16, {3, 5});
    layout->place(DType::f64, {0});
    layout->place(DType::f32, {16});
  }
  EXPECT_EQ(sizing.size(), 64 + 0 + 64);
  EXPECT_EQ(placing.size(), sizing.size());
  EXPECT_EQ(placing.place(DType::u8, {1}).data, memory.data() + 128);
  EXPECT_EQ(sizing.place(DType::u8, {1}).data, nullptr);
}

TEST(MemoryLayout, AMatrixHasAsManyElementsAsItsTensor) {
  float memory[12];
  EXPECT_EQ(as_matrix(Tensor(memory, DType::f32, {2, 2, 3}), 4, 3).sizes[0], 4);
  testing::expect_error(1000, [&] { as_matrix(Tensor(memory, DType::f32, {2, 2, 3}), 4, 2); });
}

TEST(Layers, ComputeInFourElementTypesOnly) {
  const auto size = [](auto zero) { return sizeof(zero); };
  EXPECT_EQ(dispatch(DType::f32, size), 4u);
  EXPECT_EQ(dispatch(DType::bf16, size), 2u);
  EXPECT_TRUE(dispatch(DType::f16, []<class T>(T) { return dtype_of<T>; }) == DType::f16);
  EXPECT_EQ(rounded(1.0006, DType::f16), 1.0009765625);
  EXPECT_EQ(rounded(1.0006, DType::bf16), 1);
  EXPECT_EQ(dispatch(DType::f64, size), 8u);
  for (const DType dtype : {DType::i64, DType::i32, DType::u8}) {
    testing::expect_error(1000, [&] { dispatch(dtype, size); });
  }
}

// A workspace for one thread must not be overrun by two.
TEST(Layers, AttentionRefusesAWorkspaceForFewerThreads) {
  const AttentionShape shape{1, 4, 1, 1, 2};
  const int before = kernels::num_threads();
  kernels::set_num_threads(2);
  const std::int64_t bytes = attention_workspace_bytes(shape, DType::f32, Phase::forward, 1);
  std::vector<std::byte> memory(bytes);
  std::vector<float> qkv(4 * 6), out(4 * 2), lse(4);
  const std::vector<std::int32_t> starts(4);
  const std::string text = testing::expect_error(1206, [&] {
    attention_forward(shape, {}, Tensor(qkv.data(), DType::f32, {4, 6}), starts.data(),
                      Tensor(out.data(), DType::f32, {4, 2}), Tensor(lse.data(), DType::f32, {1, 1, 4}),
                      Tensor(memory.data(), DType::u8, {bytes}));
  });
  EXPECT_NE(text.find("(2)"), std::string::npos) << text;
  kernels::set_num_threads(before);
}

}  // namespace
}  // namespace trireme
