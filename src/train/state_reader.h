// The engine's state, or that of a snapshot, as logical tensors, one after the other, for a checkpoint: whole groups
// come to rank 0 when their first tensor is read, so that it holds one group at a time.
#pragma once
#include <cstddef>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "engine/engine.h"

namespace trireme::train {

class StateReader {
 public:
  // All outlive it.
  StateReader(engine::Engine& engine, const Chain& chain);
  StateReader(engine::Engine& engine, const engine::Snapshot& snapshot, const Chain& chain);

  // Rank 0: what checkpoint::save() writes; its reads must come in order, from this thread.
  std::vector<checkpoint::NamedData> tensors();

  // Takes part in, or gets over, what was not read: every rank of an engine that updates slices, or of a snapshot,
  // reads everything.
  void read_the_rest();

 private:
  std::span<const std::byte> read(std::size_t turn, int parameter, const LogicalTensor& tensor);
  void next();

  StateReader(engine::Engine& engine, const engine::ModelState& layout, const engine::Snapshot* snapshot,
              const Chain& chain);

  engine::Engine& engine_;
  const engine::ModelState& layout_;
  const engine::Snapshot* snapshot_;  // null: the state itself
  const Chain& chain_;
  std::vector<std::pair<engine::StateKind, int>> turns_;  // kind and group, in the order in which they are read
  std::size_t next_ = 0;
  std::vector<float> gathered_, rows_;
  std::vector<std::byte> narrow_;
  std::span<const float> group_;  // of turn next_ - 1
};

}  // namespace trireme::train
