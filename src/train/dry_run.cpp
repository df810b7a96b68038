#include "train/dry_run.h"
#include "train/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include "models/model.h"
#include "train/data_sets.h"
#include "train/freeze.h"
#include "train/memory_budget.h"
#include "train/model_source.h"
#include "train/resolve.h"

namespace trireme::train {

namespace {

// Where the weights will come from. Opens and checks a folder's, unless a checkpoint will be resumed from.
std::string describe_weights(const config::Plan& plan, const ModelSource* source, const Chain& chain) {
  if (plan.checkpoint.resume != config::Resume::never) {
    const auto checkpoints = checkpoint::list(plan.output_dir / "checkpoints");
    if (!checkpoints.empty()) return "checkpoint " + checkpoints.front().folder.string();
  }
  if (source == nullptr) return fmt::format("drawn anew, seed {}", plan.training.seed);
  const checkpoint::ModelWeights weights(source->folder, chain.parameters);
  return fmt::format("{} ({}, {} file{} of {}, {})", source->folder.string(), source->config.model_type,
                     weights.files().size(), weights.files().size() == 1 ? "" : "s",
                     mebibytes(static_cast<std::int64_t>(weights.bytes())), to_string(weights.dtype()));
}

engine::StepPlan plan_with_loader(const config::Plan& plan, const Chain& chain, const ResolvedRun& run, int rank) {
  engine::StepPlan step = engine::plan_step(chain, run.engine, rank);
  auto& owners = run.engine.device < 0 ? step.memory_by_owner : step.host_memory_by_owner;
  owners["loader"] = data::loader_bytes(loader_options(plan, run.engine, rank), plan.data.sequence_length);
  return step;
}

std::string table_of(const std::map<std::string, std::int64_t>& bytes_by_owner) {
  std::string text;
  std::int64_t total = 0;
  for (const auto& [owner, bytes] : bytes_by_owner) {
    text += fmt::format("  {:<28}{:>12}\n", owner, mebibytes(bytes));
    total += bytes;
  }
  return text + fmt::format("  {:<28}{:>12}\n", "all", mebibytes(total));
}

// "7 (elements: 2 x 32768, 4 x 9216, 1 x 256)".
std::string describe_groups(const std::vector<StorageGroup>& groups) {
  std::map<std::int64_t, int, std::greater<>> by_size;
  for (const StorageGroup& group : groups) ++by_size[group.numel];
  std::vector<std::string> sizes;
  for (const auto& [numel, count] : by_size) sizes.push_back(fmt::format("{} x {}", count, numel));
  return fmt::format("{} (elements: {})", groups.size(), fmt::join(sizes, ", "));
}

}  // namespace

RunDescription describe_run(const config::Plan& given, Ranks ranks, int rank) {
  const int world_size = ranks.count;
  config::Plan plan = with_device(given, ranks);
  ranks.in_reach = expected_in_reach(plan, ranks);
  kernels::set_num_threads(plan.training.compute_threads);  // workspaces have a part for each
  const std::optional<ModelSource> source = open_model_source(plan);
  const data::Dataset dataset = open_training_data(plan);
  open_evaluation_data(plan, dataset);
  ResolvedRun run = resolve(plan, {dataset.vocabulary(), dataset.num_samples()}, ranks, std::nullopt,
                            source ? &source->config.model : nullptr);
  if (source) check_tokenizer(*source, dataset, run.notices);
  const Chain chain = make_training_chain(run, run.notices);
  const std::string weights = describe_weights(plan, source ? &*source : nullptr, chain);
  engine::StepPlan step = plan_with_loader(plan, chain, run, rank);
  check_memory_budget(plan, ranks, step.bytes(), [&](const config::Plan& changed) {
    ResolvedRun other = resolve(changed, {dataset.vocabulary(), dataset.num_samples()}, ranks, std::nullopt,
                                source ? &source->config.model : nullptr);
    const Chain other_chain = make_training_chain(other, other.notices);
    return plan_with_loader(changed, other_chain, other, 0).bytes();
  });

  std::string text = config::explain(plan);
  for (const std::string& notice : plan.notices) text += "notice: " + notice + "\n";
  for (const std::string& notice : run.notices) text += "notice: " + notice + "\n";
  for (const std::string& notice : notices_of(dataset)) text += "notice: " + notice + "\n";
  text += fmt::format("\nparameters         {} ({})\n", chain.num_parameters(), to_string(run.compute_dtype));
  text += fmt::format("weights            {}\n", weights);
  text += fmt::format("kernels            {}\n", kernel_level_of(plan));
  text += fmt::format("data               {} samples of {} tokens, vocabulary {}\n", dataset.num_samples(),
                      plan.data.sequence_length, dataset.vocabulary());
  text += fmt::format("batch              {} samples = micro_batch_size {} x {} micro-batches over {} rank{}\n",
                      run.global_batch_size, run.engine.micro_batch.batch, run.engine.split.num_micro_batches,
                      world_size, world_size == 1 ? "" : "s");
  text += fmt::format("tokens per step    {}\n", run.tokens_per_step);
  text += fmt::format("steps              {}\n", run.total_steps);
  text +=
      fmt::format("learning rate      over {} steps, {} of them warm-up\n", run.law.total_steps, run.law.warmup_steps);
  text += fmt::format("storage groups     {}\n", describe_groups(step.groups));
  text += fmt::format("schedule           {} instructions a step on rank {}; programs of all ranks verified\n",
                      step.program().instructions.size(), rank);
  text += fmt::format("memory of rank {}\n", rank);
  text += table_of(step.memory_by_owner);
  if (!step.host_memory_by_owner.empty()) {
    text += fmt::format("host memory of rank {}\n", rank);
    text += table_of(step.host_memory_by_owner);
    if (step.steps_early()) text += "  groups are updated during the backward: no clipping waits for the norm\n";
  }
  const bool is_narrow = run.engine.master_dtype != DType::f32 || run.engine.moment_dtype != DType::f32;
  if (step.updates_slices() || is_narrow || run.engine.device >= 0) {
    std::int64_t largest = 0;  // in fp32, and what is narrow once more in the checkpoint's type
    for (const StorageGroup& group : step.groups) largest = std::max(largest, group.numel * (is_narrow ? 6 : 4));
    text += fmt::format("  {:<28}{:>12}\n", "besides, while saving", mebibytes(largest));
  }
  return {std::move(text), std::move(step)};
}

}  // namespace trireme::train
