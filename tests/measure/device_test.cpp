// Benchmarks on a CUDA device: that they run there and say what can be. How fast it is, is not promised.
#include <gtest/gtest.h>

#include "kernels/device.h"
#include "measure/known_models.h"
#include "measure/model_work.h"
#include "measure/rates.h"
#include "measure/timing.h"
#include "measure/training_run.h"
#include "support/temporary_folder.h"

namespace trireme::testing {
namespace {

constexpr double kMostFlopsPerS = 3e15, kMostBytesPerS = 2e13;  // beyond any device of today

class DeviceMeasurement : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kernels::num_devices() == 0) GTEST_SKIP() << "no CUDA device here: " << kernels::why_no_device();
  }
};

TEST_F(DeviceMeasurement, TimesThePartsOfAStep) {
  for (const char* model : {"tiny", "gpt2-124m"}) {
    const measure::ModelShape shape = measure::shape_of(measure::known_model(model, 512));
    const auto rows = measure::measure_work(shape, {.micro_batch = {4, 512},
                                                    .on_device = true,
                                                    .products = true,
                                                    .attention = true,
                                                    .copy = true,
                                                    .seconds = 0.2});
    ASSERT_EQ(rows.size(), 18u);
    for (const measure::WorkRow& row : rows) {
      EXPECT_GT(row.seconds.median, 0) << row.work;
      EXPECT_LT(row.flops / row.seconds.median, kMostFlopsPerS) << row.work << ", " << row.part;
    }
    const measure::StepRates rates = measure::step_rates(rows);
    EXPECT_GT(rates.copy_bytes_per_s, 1e11);
    EXPECT_LT(rates.copy_bytes_per_s, kMostBytesPerS);
    EXPECT_GT(rates.products_s, 0);
    EXPECT_GT(rates.attention_s, 0);
  }
}

TEST_F(DeviceMeasurement, RatesAreOfTheDevice) {
  const auto comm = comm::make_local(1);
  const schedule::Rates rates = measure::measure_rates({.device = 0, .seconds = 0.05}, *comm.front());
  EXPECT_EQ(rates.measured_on.processor, kernels::device_facts(0).name);
  for (const auto& operations : {rates.fp32, rates.half}) {
    for (const double rate : {operations.small, operations.medium, operations.large, operations.attention}) {
      EXPECT_GT(rate, 1e9);
      EXPECT_LT(rate, kMostFlopsPerS);
    }
  }
  EXPECT_GT(rates.half.large, rates.half.small);
  for (const double rate : {rates.bytes_moved_per_s, rates.optimizer_bytes_per_s}) {
    EXPECT_GT(rate, 1e11);
    EXPECT_LT(rate, kMostBytesPerS);
  }
  EXPECT_GT(rates.host_copy_bytes_per_s, 1e8);
  EXPECT_LT(rates.host_copy_bytes_per_s, rates.bytes_moved_per_s);
  EXPECT_GT(rates.host_optimizer_bytes_per_s, 1e9);
  EXPECT_LT(rates.host_optimizer_bytes_per_s, rates.optimizer_bytes_per_s);
}

TEST_F(DeviceMeasurement, TrainsAKnownModel) {
  const TemporaryFolder folder;
  measure::TrainingRun run{
      .model = "tiny", .sequence = 32, .micro_batch = 2, .steps = 5, .warm_up = 2, .device = "cuda"};
  run.started = measure::seconds_since_boot();
  measure::prepare_training_run(run, 1, folder.path());
  const auto comm = comm::make_local(1);
  const auto row = measure::measure_training(run, folder.path(), *comm.front(), 1);
  EXPECT_EQ(row["gpus"], 1);
  EXPECT_EQ(row["card"], kernels::device_facts(0).name);
  EXPECT_NEAR(row["first_loss"], 6.21, 0.1);  // ln(500)
  EXPECT_GT(row["peak_memory_bytes"], 1 << 20);
  EXPECT_GT(row["planned_memory_bytes"], 1 << 20);
  EXPECT_LE(row["peak_memory_bytes"], kernels::device_facts(0).memory_bytes);
}

}  // namespace
}  // namespace trireme::testing
