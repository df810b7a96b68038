#include "train/dry_run.h"

#include <fmt/format.h>

#include "models/model.h"
#include "train/data_sets.h"
#include "train/resolve.h"

namespace trireme::train {

namespace {

std::string mebibytes(std::int64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

std::string describe_run(const config::Plan& plan, int world_size) {
  const data::Dataset dataset = open_training_data(plan);
  open_evaluation_data(plan, dataset);
  const ResolvedRun run = resolve(plan, {dataset.vocabulary(), dataset.num_samples()}, world_size);
  const Chain chain = make_chain(run.model, run.compute_dtype);
  const engine::StepPlan step = engine::plan_step(chain, run.engine, 0);

  std::string text = config::explain(plan);
  for (const std::string& notice : plan.notices) text += "notice: " + notice + "\n";
  for (const std::string& notice : run.notices) text += "notice: " + notice + "\n";
  for (const std::string& notice : notices_of(dataset)) text += "notice: " + notice + "\n";
  text += fmt::format("\nparameters         {} ({})\n", chain.num_parameters(), to_string(run.compute_dtype));
  text += fmt::format("kernels            {}\n", kernels::to_string(kernels::level()));
  text += fmt::format("data               {} samples of {} tokens, vocabulary {}\n", dataset.num_samples(),
                      plan.data.sequence_length, dataset.vocabulary());
  text += fmt::format("batch              {} samples = micro_batch_size {} x {} micro-batches over {} rank{}\n",
                      run.global_batch_size, plan.training.micro_batch_size, run.engine.split.num_micro_batches,
                      world_size, world_size == 1 ? "" : "s");
  text += fmt::format("tokens per step    {}\n", run.tokens_per_step);
  text += fmt::format("steps              {}\n", run.total_steps);
  text += fmt::format("schedule           {} instructions a step on rank 0; programs of all ranks verified\n",
                      step.program.instructions.size());
  text += "memory of rank 0\n";
  std::int64_t total = 0;
  for (const auto& [owner, bytes] : step.memory_by_owner) {
    text += fmt::format("  {:<28}{:>12}\n", owner, mebibytes(bytes));
    total += bytes;
  }
  text += fmt::format("  {:<28}{:>12}\n", "all", mebibytes(total));
  return text;
}

}  // namespace trireme::train
