// `trireme bench`: rates that are measured here make a prediction of the right order.
#include "measure/rates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "support/temporary_folder.h"
#include "train/dry_run.h"
#include "train/prediction.h"
#include "train/tiny_run.h"

namespace trireme::testing {
namespace {

// A machine that tests share with others is anything between idle and many times too busy.
constexpr double kOrder = 30;

TEST(MeasuredRates, PredictARunWithinAnOrder) {
  const auto comms = comm::make_local(2);
  schedule::Rates rates, others;
  std::thread other([&] { others = measure::measure_rates({.seconds = 0.01}, *comms[1]); });
  rates = measure::measure_rates({.seconds = 0.01}, *comms[0]);
  other.join();
  EXPECT_EQ(rates.measured_on, others.measured_on);
  EXPECT_GT(rates.loaded_collective_bytes_per_s, 0);
  for (const auto& operations : {rates.fp32, rates.half}) {
    for (const double rate : {operations.small, operations.medium, operations.large, operations.attention}) {
      EXPECT_GT(rate, 1e6);
      EXPECT_LT(rate, 1e15);
    }
  }

  const TemporaryFolder folder;
  TinyRun run{.ranks = 2, .micro_batches = 2, .steps = 6, .output_dir = folder.path() / "run"};
  run.overrides = {"model.hidden_size=256",   "model.intermediate_size=512", "model.num_layers=4",
                   "data.sequence_length=64", "training.compute_threads=1",  "model.max_position_embeddings=64"};
  const config::Plan plan = tiny_plan(run);
  std::vector<double> seconds;
  const auto ranks = comm::make_local(2);
  const auto train_rank = [&](int rank) {
    train::TrainerOptions options{.comm = ranks[rank].get(), .console = false};
    options.on_step = [&, rank](const monitor::StepRecord& record) {
      if (rank == 0) seconds.push_back(record.step_seconds);
    };
    train::Trainer(plan, options).run();
  };
  std::thread second([&] { train_rank(1); });
  train_rank(0);
  second.join();
  std::sort(seconds.begin(), seconds.end());
  const double measured = seconds[seconds.size() / 2];
  const double predicted = train::predict(train::describe_run(plan, 2, 0).step, rates).timeline.step_s;
  EXPECT_LT(predicted, kOrder * measured);
  EXPECT_GT(predicted, measured / kOrder);
}

}  // namespace
}  // namespace trireme::testing
