#include "monitor/epoch_loss.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "support/seed.h"
#include "support/temporary_folder.h"

namespace trireme::monitor {
namespace {

using Reports = std::map<std::int64_t, std::pair<double, std::int64_t>>;  // by epoch: mean and steps

// The definition: the steps by the epoch of their first sample; one that lacks a whole step at the run's end is none.
// Skipped steps have no loss.
Reports naive(const std::vector<std::optional<double>>& losses, std::uint64_t n, std::uint64_t batch) {
  Reports sums;
  for (std::size_t step = 0; step < losses.size(); ++step) {
    auto& [sum, steps] = sums[static_cast<std::int64_t>(step * batch / n) + 1];
    if (!losses[step]) continue;
    sum += *losses[step];
    ++steps;
  }
  for (auto& [epoch, entry] : sums) {
    if (entry.second > 0) entry.first /= static_cast<double>(entry.second);
  }
  const std::uint64_t taken = losses.size() * batch, end_of_last = ((losses.size() - 1) * batch / n + 1) * n;
  if (end_of_last >= taken + batch) sums.erase(std::prev(sums.end()));
  return sums;
}

// In any number of pieces, each of which reads what those before left in the file.
TEST(EpochLoss, IsTheMeanOfItsStepsWhereverTheRunWasStopped) {
  const unsigned seed = testing::test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    const std::uint64_t n = 1 + random() % 40, batch = 1 + random() % 12;
    std::vector<std::optional<double>> losses(1 + random() % 60);
    for (auto& loss : losses) {
      if (random() % 6 != 0) loss = std::generate_canonical<double, 53>(random);
    }
    const testing::TemporaryFolder folder;
    const auto file = folder.path() / "metrics.jsonl";
    Reports found;
    std::ofstream lines(file);
    EpochLoss epochs(n, batch);
    for (std::size_t step = 1; step <= losses.size(); ++step) {
      if (random() % 5 == 0) {
        lines << std::flush;
        epochs = EpochLoss(n, batch);
        epochs.restore(file, static_cast<std::int64_t>(step) - 1);
      }
      const auto& loss = losses[step - 1];
      lines << nlohmann::json{{"step", step}, {"loss", loss.value_or(99)}, {"skipped", !loss}}
            << "\n{\"event\": \"eval\", \"step\": 1, \"loss\": 9}\n";
      const auto report = epochs.add(static_cast<std::int64_t>(step), loss, step == losses.size());
      if (!report) continue;
      const double mean = report->steps > 0 ? report->mean_loss : 0;
      EXPECT_TRUE(found.emplace(report->epoch, std::pair(mean, report->steps)).second) << "told twice";
    }
    ASSERT_EQ(found, naive(losses, n, batch)) << n << " samples in steps of " << batch << ", " << losses.size();
  }
}

TEST(EpochLoss, TakesWhatIsThereOfAFileThatIsNotWhole) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "metrics.jsonl";
  EpochLoss epochs(100, 10);
  epochs.restore(file, 3);  // no file
  std::ofstream(file)
      << "{\"step\": 1, \"loss\": 4}\n{\"step\": 2, \"loss\": null}\n[3]\n{\"step\": \"3\", \"loss\": 1}\n"
         "{\"step\": -7, \"loss\": 1}\n{\"step\": 0, \"loss\": 1}\n{\"loss\": 2}\n{\"step\": 4}\n{\"step\": 99, "
         "\"loss\": 1}\nno JSON\n{\"step\": 5, \"lo";
  epochs.restore(file, 5);
  EXPECT_FALSE(epochs.add(6, 8, false));
  const auto report = epochs.add(10, 9, false);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->steps, 3);
  EXPECT_EQ(report->mean_loss, 7);
}

}  // namespace
}  // namespace trireme::monitor
