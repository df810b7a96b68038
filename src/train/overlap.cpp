#include "train/overlap.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#include "comm/collectives.h"

namespace trireme::train {
namespace {

constexpr double kMatters = 0.02;    // of the step: communication below that is not worth a warning
constexpr double kHidesNone = 0.10;  // of what could be hidden

using Seconds = engine::StepReport::Seconds;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct Steps {
  std::vector<double> whole, communication, computing;
  void add(double seconds, const Seconds& parts) {
    whole.push_back(seconds);
    communication.push_back(parts.gather + parts.reduce);
    computing.push_back(parts.computing);
  }
};

void run_step(engine::Engine& engine, comm::Communicator& comm, std::span<const Batch> batches, bool silent,
              Steps* steps) {
  using Clock = std::chrono::steady_clock;
  comm::barrier(comm);
  const Clock::time_point start = Clock::now();
  const engine::StepReport report = engine.step(batches, {.learning_rate = 1e-6, .silent = silent});
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (steps != nullptr) steps->add(seconds, report.seconds.value());
}

}  // namespace

double Overlap::exposed_s() const {
  return std::max(0.0, step_s - silent_s);
}

double Overlap::hidden_s() const {
  return std::max(0.0, communication_s - exposed_s());
}

std::string Overlap::words() const {
  return fmt::format(
      "communication makes a step {:.1f} ms longer: {:.1f} ms, {:.1f} ms without it; it takes {:.1f} ms, {:.1f} ms of "
      "them hidden",
      1e3 * exposed_s(), 1e3 * step_s, 1e3 * silent_s, 1e3 * communication_s, 1e3 * hidden_s());
}

Overlap measure_overlap(const Chain& chain, const engine::EngineOptions& given, comm::Communicator& comm,
                        std::span<const Batch> batches, int pairs) {
  engine::EngineOptions options = given;
  options.measures = options.may_be_silent = true;
  engine::Engine engine(chain, options, comm);
  Steps real, silent;
  for (int pair = 0; pair < pairs; ++pair) {
    for (const bool is_silent : {false, true}) {
      engine.drain();
      engine.state().initialize(1);  // silent steps leave weights that mean nothing
      engine.refresh_weights();
      run_step(engine, comm, batches, is_silent, nullptr);  // after which an update may be pending, as in most steps
      run_step(engine, comm, batches, is_silent, is_silent ? &silent : &real);
    }
  }
  using Medians = std::array<double, 4>;
  const Medians own{median(real.whole), median(silent.whole), median(real.communication), median(silent.computing)};
  Medians most{};
  for (const Medians& rank : comm::gathered(comm, own)) {
    for (std::size_t i = 0; i < most.size(); ++i) most[i] = std::max(most[i], rank[i]);
  }
  return {most[0], most[1], most[2], most[3]};
}

bool asks_for_overlap(const engine::StepPlan& plan) {
  if (plan.options.world_size == 1 || !plan.options.overlap) return false;
  if (plan.has_sharded_parameters() && plan.options.gather_ahead > 0) return true;
  bool reduced = false;
  for (const schedule::Instruction& instruction : plan.program().instructions) {
    if (instruction.op == schedule::Op::reduce) reduced = true;
    if (instruction.op == schedule::Op::backward && reduced) return true;
  }
  return false;
}

std::optional<Error> overlap_complaint(const Overlap& overlap, const engine::StepPlan& plan, int free_cores) {
  if (!asks_for_overlap(plan) || free_cores < 1) return std::nullopt;
  if (overlap.communication_s < kMatters * overlap.step_s) return std::nullopt;
  if (overlap.hidden_s() >= kHidesNone * std::min(overlap.communication_s, overlap.computing_s)) return std::nullopt;
  const bool gathers_late = plan.has_sharded_parameters() && plan.options.gather_ahead == 0;
  return Error(2295, "monitor.exposed_communication",
               fmt::format("communication was to run beside the computing, and there are cores for it ({} free), but "
                           "of its {:.1f} ms a step next to nothing is hidden",
                           free_cores, 1e3 * overlap.communication_s),
               gathers_late
                   ? "set distributed.gather_ahead to 1 or more: weights are then gathered before they are needed"
                   : "raise distributed.gradient_slots or distributed.gather_ahead, and see that no other "
                     "program takes the cores; monitor.trace_step draws which instruction waits for which");
}

}  // namespace trireme::train
