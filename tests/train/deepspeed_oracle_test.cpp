// What DeepSpeed's own configuration class makes of some hundred configurations (goldens by
// tests/config/deepspeed_oracle.py), and what is made of them here. Every difference has its row in a table.
#include <fstream>
#include <nlohmann/json.hpp>

#include "config/tool_files.h"
#include "train/batch.h"

namespace trireme::train {
namespace {

using Json = nlohmann::json;

const std::string kGoldens = std::string(TRIREME_SOURCE_DIR) + "/tests/config/goldens/";

// How the same configuration ends here, in the words of the table; "" as in DeepSpeed.
std::string difference(const Json& golden) {
  const bool accepted = golden.at("accepted");
  try {
    const int ranks = golden.at("ranks");
    const config::Plan plan = config::plan_with_deepspeed(golden.at("config").dump());
    std::vector<std::string> notices;
    const BatchSizes batch = batch_of(plan, ranks, {}, notices);
    if (!accepted) return "accepts";
    const std::string strategies[] = {"ddp", "zero1", "zero2", "zero3"};
    const bool same = batch.global_size() == golden.at("train") && batch.micro_batch_size == golden.at("micro") &&
                      batch.num_micro_batches == golden.at("accumulation").get<int>() * ranks &&
                      config::value_of(plan, "distributed.strategy") == strategies[golden.at("stage").get<int>()] &&
                      config::value_of(plan, "training.mixed_precision") == golden.at("precision") &&
                      plan.training.gradient_clipping == golden.at("clipping");
    return same ? "" : "reads otherwise";
  } catch (const Error& error) {
    return accepted ? "refuses" : "";
  }
}

TEST(DeepSpeedOracle, EveryDifferenceHasItsRowAndEveryRowItsDifference) {
  const Json table = Json::parse(std::ifstream(kGoldens + "deepspeed_differences.json"));
  std::vector<int> used(table.size(), 0);
  std::ifstream goldens(kGoldens + "deepspeed.jsonl");
  int compared = 0;
  for (std::string line; std::getline(goldens, line); ++compared) {
    const Json golden = Json::parse(line);
    const std::string about = golden.at("about"), ours = difference(golden);
    if (ours.empty()) continue;
    bool is_known = false;
    for (std::size_t i = 0; i < table.size(); ++i) {
      if (table[i].at("ours") != ours || !about.starts_with(table[i].at("about").get<std::string>())) continue;
      is_known = true;
      ++used[i];
    }
    EXPECT_TRUE(is_known) << "ours: " << ours << "; " << line;
  }
  EXPECT_GT(compared, 400);
  for (std::size_t i = 0; i < table.size(); ++i) EXPECT_GT(used[i], 0) << "no difference any more: " << table[i];
}

}  // namespace
}  // namespace trireme::train
