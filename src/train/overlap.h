// What communication costs a step because nothing hides it, measured: the time of a step less that of the same schedule
// with collectives that tell nobody anything (engine::StepOptions::silent).
#pragma once
#include <optional>
#include <span>
#include <string>

#include "base/error.h"
#include "engine/engine.h"

namespace trireme::train {

// Medians, in seconds; of all ranks the largest.
struct Overlap {
  double step_s = 0;
  double silent_s = 0;         // without collectives
  double communication_s = 0;  // the reduce lane at work in a step, waiting for other ranks included
  double computing_s = 0;      // the compute lane at work in a silent step
  double exposed_s() const;
  double hidden_s() const;  // what of communication_s did not make the step longer
  std::string words() const;
};

// A collective. Builds an engine of its own, weights drawn from any seed, and measures `pairs` steps of each kind in
// turns, each after one that does not count. batches: one a round of this rank.
Overlap measure_overlap(const Chain& chain, const engine::EngineOptions& options, comm::Communicator& comm,
                        std::span<const Batch> batches, int pairs);

// Whether the schedule has collectives that may run while units do: gathers ahead, reductions during the backward.
bool asks_for_overlap(const engine::StepPlan& plan);

// TR2295, with what may help, where next to nothing was hidden of communication that matters and could have been,
// although it was asked for and there are free_cores beside those that compute.
std::optional<Error> overlap_complaint(const Overlap& overlap, const engine::StepPlan& plan, int free_cores);

}  // namespace trireme::train
