// monitor.wall_clock_breakdown: what a step spends.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/failpoint.h"
#include "support/temporary_folder.h"
#include "train/tiny_run.h"

namespace trireme::testing {
namespace {

// The step records of a run on two ranks that has asked for the parts, under these delays.
std::vector<nlohmann::json> steps_of(const std::string& delays) {
  const TemporaryFolder folder;
  TinyRun run{.ranks = 2, .micro_batches = 4, .steps = 4, .output_dir = folder.path() / "run"};
  run.overrides = {"distributed.strategy=zero3", "training.gradient_checkpointing=full",
                   "monitor.wall_clock_breakdown=true", "data.num_workers=0"};
  set_failpoints(delays);
  train_tiny(run);
  set_failpoints("");
  for (const auto& entry : std::filesystem::directory_iterator(run.output_dir)) {
    EXPECT_FALSE(entry.path().filename().string().starts_with("trace")) << "a trace that nobody asked for";
  }
  std::ifstream file(run.output_dir / "metrics.jsonl");
  std::vector<nlohmann::json> steps;
  for (std::string line; std::getline(file, line);) {
    auto record = nlohmann::json::parse(line);
    if (record.contains("loss") && !record.contains("event")) steps.push_back(std::move(record));
  }
  EXPECT_EQ(steps.size(), 4u);
  return steps;
}

double sum_of(const nlohmann::json& parts, std::initializer_list<const char*> names) {
  double sum = 0;
  for (const char* name : names) sum += parts.at(name).get<double>();
  return sum;
}

TEST(WallClock, ThePartsOfTheComputeLaneAreTheStep) {
  for (const nlohmann::json& step : steps_of("")) {
    const auto& parts = step.at("breakdown_ms");
    for (const char* part : {"forward", "recompute", "backward", "step", "gather", "reduce"}) {
      EXPECT_GT(parts.at(part).get<double>(), 0) << part;
    }
    const double whole = 1e3 * step.at("step_seconds").get<double>();
    const double known = sum_of(parts, {"forward", "recompute", "backward", "step", "waiting", "outside"});
    EXPECT_LE(known, whole * (1 + 1e-9));  // RELEASE is in none
    EXPECT_GT(known, 0.8 * whole);
  }
}

// Sleeping loaders make the step wait outside its instructions, sleeping collectives inside.
TEST(WallClock, TellsALateLoaderFromLateCollectives) {
  const auto last = [](const std::string& delays) { return steps_of(delays).back().at("breakdown_ms"); };
  const nlohmann::json loader = last("data.loader=sleep(300)@every");
  EXPECT_GT(loader.at("outside").get<double>(), 200);
  const nlohmann::json collectives = last("engine.reduce=sleep(30)@every");  // 2 rounds of at least 4 groups
  EXPECT_GT(collectives.at("waiting").get<double>(), 200);
  EXPECT_GT(collectives.at("reduce").get<double>(), 200);
  EXPECT_GT(collectives.at("waiting").get<double>(), collectives.at("outside").get<double>());
  EXPECT_GT(loader.at("outside").get<double>(), collectives.at("outside").get<double>());
}

}  // namespace
}  // namespace trireme::testing
