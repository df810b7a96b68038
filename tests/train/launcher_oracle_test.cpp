// What accelerate makes of some hundred of its files, and transformers of --fsdp and --fsdp_config (goldens by
// tests/config/accelerate_oracle.py and fsdp_oracle.py), and what is made of them here.
#include "config/oracle.h"
#include "config/tool_files.h"
#include "config/tool_folder.h"
#include "train/resolve.h"

namespace trireme::train {
namespace {

using namespace config;  // NOLINT

using testing::Json;
using testing::OracleValues;

std::string or_word(const std::optional<std::int64_t>& number, const char* word) {
  return number ? std::to_string(*number) : word;
}

std::string joined(const std::vector<std::string>& words) {
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : ",") + word;
  return all;
}

OracleValues values_of(const Plan& plan) {
  const DistributedPlan& d = plan.distributed;
  const int ranks = static_cast<int>(d.num_processes.value_or(4));
  const int replicas = resolve(plan, {256, 1000}, ranks).engine.replicas;
  const bool has_accumulation = plan.training.gradient_accumulation_steps.has_value();
  const bool has_clipping = !plan.origins.at("training.gradient_clipping").is_default;
  return {{"processes", or_word(d.num_processes, "any")},
          {"machines", "1"},
          {"rank", "unset"},
          {"address", "unset"},
          {"port", "unset"},
          {"precision", value_of(plan, "training.mixed_precision")},
          {"strategy", value_of(plan, "distributed.strategy") +
                           (d.strategy == Strategy::hybrid_shard && d.reuse_distance > 0 ? "_zero2" : "")},
          {"dp_replicate", std::to_string(replicas)},
          {"dp_shard", std::to_string(ranks / replicas)},
          {"wrap", value_of(plan, "distributed.auto_wrap")},
          {"classes", joined(d.wrap_classes)},
          {"min_params", std::to_string(d.min_num_params)},
          {"gather_ahead", std::to_string(d.gather_ahead)},
          {"state_dict", "full"},
          {"recompute", plan.training.gradient_checkpointing == Recompute::full ? "true" : "false"},
          {"offload_optimizer", value_of(plan, "distributed.offload_optimizer")},
          {"offload_param", value_of(plan, "distributed.offload_param")},
          {"accumulation", has_accumulation ? or_word(plan.training.gradient_accumulation_steps, "") : "auto"},
          {"clipping", has_clipping ? value_of(plan, "training.gradient_clipping") : "auto"}};
}

TEST(AccelerateOracle, EveryDifferenceHasItsRowAndEveryRowItsDifference) {
  testing::compare_with_oracle("accelerate", 300, [](const Json& golden) {
    const ToolFolder folder;
    const Json files = golden.value("files", Json::object());
    for (const auto& [name, content] : files.items()) folder.write(name, content.dump());
    const auto file = folder.write("accelerate.yaml", golden.value("text", golden.at("config").dump()));
    return values_of(parse_plan(kSmall, "run.yaml", {}, {.accelerate = file}));
  });
}

TEST(TransformersOracle, EveryDifferenceHasItsRowAndEveryRowItsDifference) {
  testing::compare_with_oracle("fsdp", 100, [](const Json& golden) {
    const ToolFolder folder;
    const Json& config = golden.at("config");
    const std::string words = config.contains("fsdp") ? "  fsdp: " + config["fsdp"].dump() + "\n" : "";
    ToolFiles files;
    if (config.contains("fsdp_config")) files.fsdp = folder.write("fsdp.json", config["fsdp_config"].dump());
    return values_of(parse_plan(kSmall + words, "run.yaml", {}, files));
  });
}

}  // namespace
}  // namespace trireme::train
