#include "train/prediction.h"

#include <fmt/format.h>

#include "schedule/lower.h"
#include "schedule/rank_classes.h"
#include "train/memory_budget.h"

namespace trireme::train {

Prediction predict(const engine::StepPlan& step, const schedule::Rates& rates) {
  return predict(step, rates, step.program());
}

Prediction predict(const engine::StepPlan& step, const schedule::Rates& rates, const schedule::Program& program) {
  schedule::Options options = step.options;
  options.pass = program.pass;
  options.snapshots = program.snapshots;
  std::vector<schedule::Program> programs{program};
  for (const int rank : schedule::representative_ranks(options)) {
    programs.push_back(schedule::lower(schedule::build_schedule(step.chain, options, rank), options));
  }
  Prediction prediction{{}, std::move(schedule::simulate(step.chain, options, programs, rates).front())};
  const schedule::Timeline& timeline = prediction.timeline;
  std::string& text = prediction.text;
  const auto add = [&](const std::string& what, double seconds) {
    text += fmt::format("  {:<28}{:>9.{}f} ms\n", what, seconds * 1e3, seconds < 0.01 ? 3 : 1);
  };
  const double compute = timeline.busy_s[static_cast<int>(schedule::Lane::compute)];
  text += fmt::format("predicted step of rank {} ({})\n", programs.front().rank, rates.words());
  add("step", timeline.step_s);
  add("compute lane at work", compute);
  add("reduce lane at work", timeline.communication_s());
  add("exposed communication", timeline.exposed_s);
  if (schedule::uses(programs.front(), schedule::Lane::copy)) {
    add("copy lane at work", timeline.busy_s[static_cast<int>(schedule::Lane::copy)]);
    add("exposed copies and updates", timeline.exposed_copy_s);
  }
  add("waiting for other ranks", timeline.idle_s);
  add("compute lane idle", timeline.step_s - compute);
  add("reduce lane idle", timeline.step_s - timeline.communication_s());
  text += fmt::format("  {:<28}{:>12} of {} planned\n", "peak memory", mebibytes(timeline.peak_bytes),
                      mebibytes(step.bytes()));
  return prediction;
}

}  // namespace trireme::train
