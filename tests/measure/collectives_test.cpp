// `trireme bench comm`'s measurements: that they are of what they say. How fast it is, is not promised.
#include "measure/collectives.h"

#include <gtest/gtest.h>

#include <thread>

#include "kernels/device.h"
#include "measure/load.h"

namespace trireme::testing {
namespace {

using enum measure::Collective;

// Of rank 0 of two that are threads; both with the CPU, or a device each.
std::vector<measure::CommRow> measure_two(const measure::CommOptions& options, bool on_devices) {
  const auto comms = comm::make_local(2);
  const auto rank_options = [&](int rank) {
    measure::CommOptions own = options;
    own.device = on_devices ? rank : -1;
    return own;
  };
  std::thread other([&] { measure::measure_comm(rank_options(1), *comms[1]); });
  const auto rows = measure::measure_comm(rank_options(0), *comms[0]);
  other.join();
  return rows;
}

// The examples of nccl-tests' own words: of S bytes in t seconds, S/t (n-1)/n, and 2 S/t (n-1)/n.
TEST(Collectives, BusBandwidthDoesNotDependOnTheNumberOfRanks) {
  EXPECT_DOUBLE_EQ(measure::bus_bytes_per_s(all_gather, 8e9, 2, 4), 3e9);
  EXPECT_DOUBLE_EQ(measure::bus_bytes_per_s(reduce_scatter, 8e9, 2, 2), 2e9);
  EXPECT_DOUBLE_EQ(measure::bus_bytes_per_s(all_reduce, 8e9, 2, 2), 4e9);
  // Links of 1 GB/s, 7 parts of 8 to send: as much whoever counts.
  EXPECT_DOUBLE_EQ(measure::bus_bytes_per_s(all_gather, 8e9, 7, 8), measure::bus_bytes_per_s(all_gather, 2e9, 1, 2));
}

void expect_rows(const std::vector<measure::CommRow>& rows, const std::vector<std::int64_t>& sizes) {
  ASSERT_EQ(rows.size(), 2 * 3 * sizes.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const measure::CommRow& row = rows[i];
    SCOPED_TRACE(std::string(to_string(row.collective)) + " of " + std::to_string(row.bytes));
    EXPECT_EQ(row.loaded, i >= rows.size() / 2);
    EXPECT_LE(row.bytes, std::max<std::int64_t>(sizes[i % (3 * sizes.size()) / 3], 8));
    EXPECT_GT(row.bytes, sizes[i % (3 * sizes.size()) / 3] - 8);
    EXPECT_EQ(row.dtype, row.collective == all_reduce ? DType::f32 : DType::bf16);
    EXPECT_GE(row.seconds.runs, 5);
    EXPECT_DOUBLE_EQ(row.bus_bytes_per_s,
                     measure::bus_bytes_per_s(row.collective, static_cast<double>(row.bytes), row.seconds.median, 2));
  }
  const std::string table = measure::to_table(rows);
  for (const char* word : {"all_gather", "reduce_scatter", "all_reduce", "bf16", "fp32"}) {
    EXPECT_NE(table.find(word), std::string::npos) << table;
  }
}

TEST(Collectives, AreTimedAloneAndBesideProductsForEachSize) {
  const std::vector<std::int64_t> sizes{4, 1001, 4 << 20};
  const auto rows = measure_two({.bytes = sizes, .seconds = 0.01}, false);
  expect_rows(rows, sizes);
}

// A sum of two ranks' equal numbers is twice them, however often it was made.
TEST(Collectives, RunOnNumbersThatStayWhatTheyAre) {
  const auto comms = comm::make_local(2);
  std::vector<measure::Timing> timings(2);
  const auto run = [&](int rank) {
    measure::Exchange exchange(*comms[rank], DType::f32, 1 << 12);
    timings[rank] = exchange.time(all_reduce, 1 << 12, 0.05);
    const auto values = measure::some_values<float>(1024);
    const auto* sums = reinterpret_cast<const float*>(exchange.sums().at(0));
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(sums[i], 2 * values[i]) << i;
    exchange.time(reduce_scatter, 1 << 12, 0.05);
    for (std::size_t i = 0; i < 512; ++i) EXPECT_EQ(sums[i], 2 * values[512 * rank + i]) << rank << ", " << i;
  };
  std::thread other([&] { run(1); });
  run(0);
  other.join();
  EXPECT_EQ(timings[0].runs, timings[1].runs);
}

class DeviceCollectives : public ::testing::Test {};

TEST_F(DeviceCollectives, AreTimedByCopiesAndThroughNccl) {
  if (kernels::num_devices() < 2) GTEST_SKIP() << "this needs two CUDA devices; here are " << kernels::num_devices();
  const std::vector<std::int64_t> sizes{1024, 64 << 20};
  for (const bool copies : {true, false}) {
    const auto rows = measure_two({.bytes = sizes, .seconds = 0.05, .copies = copies}, true);
    expect_rows(rows, sizes);
    EXPECT_EQ(rows.front().way, copies ? "copies" : "NCCL");
  }
}

}  // namespace
}  // namespace trireme::testing
