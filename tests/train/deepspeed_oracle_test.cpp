// What DeepSpeed's own configuration class makes of some hundred configurations, and what is made of them here.
#include "config/tool_files.h"
#include "goldens.h"
#include "train/batch.h"

namespace trireme::train {
namespace {

// How the same configuration ends here, in the words of the table; "" as in DeepSpeed.
std::string deepspeed_difference(const Json& golden) {
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
  expect_only_known_differences("deepspeed", deepspeed_difference);
}

}  // namespace
}  // namespace trireme::train
