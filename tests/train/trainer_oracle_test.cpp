// What transformers' Trainer makes of "auto" in a file of DeepSpeed, and what is made of it here.
#include "config/tool_files.h"
#include "goldens.h"
#include "train/batch.h"

namespace trireme::train {
namespace {

// The Trainer's arguments as our keys on a command line.
config::Overrides overrides_of(const Json& golden) {
  const std::pair<const char*, const char*> keys[] = {
      {"training.micro_batch_size", "per_device_train_batch_size"},
      {"training.gradient_accumulation_steps", "gradient_accumulation_steps"},
      {"training.gradient_clipping", "max_grad_norm"},
      {"training.learning_rate", "learning_rate"},
      {"training.adam_beta1", "adam_beta1"},
      {"training.adam_beta2", "adam_beta2"},
      {"training.adam_eps", "adam_epsilon"},
      {"training.weight_decay", "weight_decay"},
      {"training.mixed_precision", "precision"},
      {"training.warmup_steps", "warmup_steps"},
      {"training.max_steps", "max_steps"}};
  config::Overrides result = {"model.hidden_size=" + golden.at("hidden_size").dump()};
  for (const auto& [ours, theirs] : keys) {
    result.push_back(std::string(ours) + "=" + golden.at("arguments").at(theirs).dump());
  }
  return result;
}

// A plan in DeepSpeed's names.
Json in_their_names(const config::Plan& plan, const BatchSizes& batch, int ranks) {
  const config::TrainingPlan& t = plan.training;
  return {{"train_micro_batch_size_per_gpu", batch.micro_batch_size},
          {"gradient_accumulation_steps", batch.num_micro_batches / ranks},
          {"train_batch_size", batch.global_size()},
          {"gradient_clipping", t.gradient_clipping},
          {"optimizer.params.lr", t.learning_rate},
          {"optimizer.params.betas", {t.adam_beta1, t.adam_beta2}},
          {"optimizer.params.eps", t.adam_eps},
          {"optimizer.params.weight_decay", t.weight_decay},
          {"scheduler.params.warmup_min_lr", plan.law.warmup_min_learning_rate},
          {"scheduler.params.warmup_max_lr", t.learning_rate},
          {"scheduler.params.warmup_num_steps", t.warmup_steps},
          {"scheduler.params.total_num_steps", plan.law.lr_total_steps.value_or(*t.max_steps)},
          {"fp16.enabled", t.mixed_precision == config::MixedPrecision::fp16},
          {"bf16.enabled", t.mixed_precision == config::MixedPrecision::bf16},
          {"zero_optimization.reduce_bucket_size", plan.distributed.bucket_size.value_or(0)},
          {"zero_optimization.stage3_prefetch_bucket_size", plan.distributed.gather_ahead},
          {"zero_optimization.stage3_param_persistence_threshold", plan.distributed.persistence_threshold}};
}

Json values_of(const config::Plan& plan, int ranks) {
  std::vector<std::string> notices;
  return in_their_names(plan, batch_of(plan, ranks, {}, notices), ranks);
}

bool is_auto(const Json& golden, std::string name) {
  for (std::size_t dot; (dot = name.find('.')) != std::string::npos;) name[dot] = '/';
  const Json::json_pointer place("/" + name);
  return golden.at("config").contains(place) && golden.at("config").at(place) == "auto";
}

// Which keys are not as the Trainer fills them, or where it does not, as the command line alone has them.
std::string other_values(const Json& golden, const Json& ours) {
  Json expected = values_of(config::plan_of(config::kSmall, overrides_of(golden)), golden.at("ranks"));
  for (const auto& [name, value] : golden.at("filled").items()) {
    if (value == "auto") continue;  // two keys below stage 3
    // hidden_size^2 joins their messages and would cut ours: docs/deepspeed.md.
    if (name.ends_with("reduce_bucket_size") && is_auto(golden, name)) continue;
    const bool counts_elements = name.ends_with("prefetch_bucket_size");  // here units
    expected[name] = counts_elements ? Json(value > 0 ? 1 : 0) : value;
  }
  std::string other;
  for (const auto& [name, value] : expected.items()) {
    if (ours.at(name) != value) other += (other.empty() ? "reads otherwise: " : ", ") + name;
  }
  return other;
}

std::size_t places_in(const std::string& text) {
  std::size_t count = 0;
  for (const std::string_view place : {"command line: ", "ds.json:"}) {
    for (std::size_t at = text.find(place); at != std::string::npos; at = text.find(place, at + 1)) ++count;
  }
  return count;
}

std::string trainer_difference(const Json& golden) {
  const bool agrees = golden.contains("filled");
  try {
    const config::Plan plan = config::plan_with_deepspeed(golden.at("config").dump(), overrides_of(golden));
    const Json ours = values_of(plan, golden.at("ranks"));
    return agrees ? other_values(golden, ours) : "accepts";
  } catch (const Error& error) {
    if (agrees) return "refuses";
    const std::string text = error.what();
    const bool names_both = places_in(text) >= 2;
    return names_both ? "" : "names one of them: " + text;
  }
}

TEST(TrainerOracle, AutoIsFilledAndArgumentsAreRefusedAsThere) {
  expect_only_known_differences("trainer", trainer_difference);
}

}  // namespace
}  // namespace trireme::train
