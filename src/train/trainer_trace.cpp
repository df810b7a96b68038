#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/cpu.h"
#include "base/file.h"
#include "base/log.h"
#include "schedule/draw.h"
#include "train/prediction.h"
#include "train/rates_here.h"
#include "train/trainer.h"

namespace trireme::train {

void Trainer::tell_overlap(const Overlap& overlap) {
  emit({{"event", "exposed_communication"},
        {"step_ms", 1e3 * overlap.step_s},
        {"without_communication_ms", 1e3 * overlap.silent_s},
        {"communication_ms", 1e3 * overlap.communication_s},
        {"exposed_ms", 1e3 * overlap.exposed_s()}});
  log::info(overlap.words());
  const int ranks_here = options_.local_ranks > 0 ? options_.local_ranks : comm_.world_size();
  const int free_cores = count_cpus() - ranks_here * plan_.training.compute_threads;
  if (const auto complaint = overlap_complaint(overlap, engine_->plan(), free_cores)) log::warn(complaint->what());
}

// A trace that cannot be written costs the trace, not the run.
void Trainer::write_trace(engine::StepReport report) {
  const engine::StepPlan& step = engine_->plan();
  const schedule::Rates rates = rates_here(plan_);
  const schedule::Program& program = step.programs[report.program];
  const schedule::Timeline planned = predict(step, rates, program).timeline;
  const schedule::Timeline measured = schedule::summarize(program, std::move(report.spans));
  const schedule::TraceProcess processes[] = {{"planned", planned}, {"measured", measured}};
  const auto file = plan_.output_dir / fmt::format("trace-step-{}-rank-{}.json", step_, comm_.rank());
  try {
    write_file_atomic(file, schedule::to_chrome_trace(step.chain, step.options, program, processes, rates.words()));
  } catch (const Error& error) {
    log::warn(fmt::format("the timeline of step {} was not written: {}", step_, error.what()));
    return;
  }
  if (!is_first_rank()) return;
  log::info(
      fmt::format("step {} took {:.1f} ms, {:.1f} ms of it communication that nothing hid; planned {}: {:.1f} and "
                  "{:.1f} ms; {}",
                  step_, measured.step_s * 1e3, measured.exposed_s * 1e3,
                  rates.source.empty() ? "without calibration" : "from measured rates", planned.step_s * 1e3,
                  planned.exposed_s * 1e3, file.string()));
}

}  // namespace trireme::train
