#include "train/engine_run.h"

#include <mutex>

#include "comm/ranks.h"
#include "train/data_sets.h"
#include "train/resolve.h"
#include "train/whole_state.h"

namespace trireme::testing {

EngineResult run_engines(const EngineRun& wanted) {
  TinyRun tiny = wanted.run;
  if (tiny.output_dir.empty()) tiny.output_dir = "nowhere";  // nothing is written
  const config::Plan plan = tiny_plan(tiny);
  WholeState whole;
  std::mutex mutex;
  EngineResult result;
  comm::run_ranks(tiny.ranks, [&](comm::Communicator& comm) {
    const data::Dataset dataset = train::open_training_data(plan);
    train::ResolvedRun run =
        train::resolve(plan, {dataset.vocabulary(), dataset.num_samples()}, {tiny.ranks, "", 0, comm.rank()});
    wanted.change(run.engine);
    const Chain chain = make_chain(run.model, run.compute_dtype);
    engine::Engine engine(chain, run.engine, comm);
    engine.state().initialize(plan.training.seed);
    wanted.begin(engine, chain);
    engine.refresh_weights();
    data::Loader loader(
        dataset, {plan.training.seed, dataset.num_samples(), plan.data.shuffle},
        {.micro_batch_size = tiny.micro_batch_size, .split = run.engine.split, .data_rank = comm.rank()});
    std::int64_t good_step = wanted.done + 1;
    for (std::int64_t step = 1; step <= tiny.steps; ++step) {
      const data::StepBatches batches = loader.next();
      if (step <= wanted.done || wanted.left_out.contains(step)) continue;
      const engine::StepReport report =
          engine.step(batches.rounds, {.learning_rate = optim::learning_rate(run.law, good_step),
                                       .step = good_step,
                                       .run_step = step,
                                       .snapshot = wanted.snapshots.contains(step)});
      wanted.after_step(engine, chain, comm, step);
      if (!report.non_finite) ++good_step;
      if (comm.rank() == 0) result.reports.push_back(report);
    }
    engine.drain();
    const std::lock_guard lock(mutex);
    whole.add(engine.state());
    if (comm.rank() == 0) result.loss_scale = engine.loss_scale();
  });
  result.weights_digest = whole.digest();
  result.all_ranks_equal = whole.equal();
  return result;
}

}  // namespace trireme::testing
