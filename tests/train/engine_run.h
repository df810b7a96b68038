// Engines without a Trainer, for options that no configuration asks for: the tiny run of tiny_run.h, ranks as threads.
#pragma once
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "train/tiny_run.h"

namespace trireme::testing {

struct EngineRun {
  TinyRun run;  // without stop_at
  std::function<void(engine::EngineOptions&)> change = [](engine::EngineOptions&) {};
  std::set<std::int64_t> left_out = {};   // steps whose samples are passed over
  std::int64_t done = 0;                  // steps before the first: left out, but the law counts them
  std::set<std::int64_t> snapshots = {};  // steps that ask for one
  // On every rank: before the first step, and after each.
  std::function<void(engine::Engine&, const Chain&)> begin = [](engine::Engine&, const Chain&) {};
  std::function<void(engine::Engine&, const Chain&, comm::Communicator&, std::int64_t step)> after_step =
      [](engine::Engine&, const Chain&, comm::Communicator&, std::int64_t) {};
};

struct EngineResult {
  std::vector<engine::StepReport> reports;  // of rank 0, one a step that ran
  std::string weights_digest;               // as TinyResult's
  bool all_ranks_equal = false;
  optim::LossScaleState loss_scale;  // after the last step
};

// The first exception of the lowest rank comes out, after all threads have ended.
EngineResult run_engines(const EngineRun& run);

}  // namespace trireme::testing
