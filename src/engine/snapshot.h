// The state behind one step, which stays as it is while training goes on: Engine::snapshot().
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/model_state.h"

namespace trireme::engine {

// As long as one is there the engine takes no other. Reads and destruction may come from any thread, beside steps; the
// engine must outlive it.
class Snapshot {
 public:
  // For Engine, whose `readers` it counts among.
  Snapshot(const ModelState& state, std::int64_t step, std::atomic<int>& readers);

  // StepOptions::run_step of the step behind which the state was so, or where that is 0 ::step.
  std::int64_t step() const { return step_; }
  // Kinds, names and places of what there is; its numbers are those of now.
  const ModelState& layout() const { return *state_; }

  // What this rank has of a kind, of every trainable group ModelState::slice_of(). Frozen groups do not change: they
  // are read where they are.
  Range held(StateKind kind, int group) const;
  // These elements: in the snapshot, in the state, or (of what is not fp32) in storage.
  std::span<const float> read(StateKind kind, int group, std::vector<float>& storage) const;

 private:
  struct Release {
    void operator()(std::atomic<int>* readers) const;
  };
  const ModelState* state_;
  std::int64_t step_;
  std::unique_ptr<std::atomic<int>, Release> hold_;
};

}  // namespace trireme::engine
