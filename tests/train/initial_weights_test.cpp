// Initial weights are a function of seed, name and place alone, also where many threads draw them.
#include <gtest/gtest.h>

#include "base/random.h"
#include "train/engine_run.h"

namespace trireme::testing {
namespace {

TEST(InitialWeights, OfLargeMatricesAreThoseOfTheirPlaces) {
  std::int64_t large = 0;
  const auto check = [&](engine::Engine& engine, const Chain&) {
    engine.state().for_each_piece(engine::StateKind::master, [&](const engine::ModelState::HeldPiece& piece) {
      if (piece.parameter.init != Init::normal || piece.box.numel() < 1 << 20) return;
      ++large;
      const std::uint64_t stream = stream_id("init/" + piece.tensor.name);
      for (std::int64_t row = 0; row < piece.box.rows(); row += 7) {
        const std::int64_t column = row * 31 % piece.box.columns();
        const auto place = static_cast<std::uint64_t>(row * piece.box.columns() + column);
        ASSERT_EQ(piece.data[row * piece.row_stride + column],
                  static_cast<float>(random_normal(1234, stream, place) * piece.parameter.init_std))
            << piece.tensor.name << " row " << row;
      }
    });
  };
  TinyRun run{.steps = 1};
  run.overrides = {"model.hidden_size=1024", "model.num_layers=1", "training.seed=1234"};
  run_engines({.run = run, .begin = check});
  EXPECT_EQ(large, 2);  // of queries and output
}

}  // namespace
}  // namespace trireme::testing
